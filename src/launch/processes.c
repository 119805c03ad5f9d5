#include "launch/processes.h"

#include "base/amount.h"
#include "base/build.h"
#include "base/parallel_for.h"
#include "kernels/machine.h"
#include "launch/ranks.h"

#include <time.h>
#include <unistd.h>

enum { HOST_BYTES = 64, LINE_BYTES = 128, REFUSAL_SECONDS = 30 };
// Before the ranks know of each other: seconds that rank 1 leaves to rank 0 to report an error, and the other ranks,
// twice as long, to ranks 0 and 1; the launcher ends those that did not report it.
enum { START_PATIENCE = 5 };
// The most milliseconds that other ranks give rank 0 to report an error that they have found, too; and lower ranks to
// say that they know of a lost one.
enum { PATIENCE = 1000, HEARING = 300 };

// ---- the launcher

static int processes_number_of(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    return text && end != text && *end == 0 && n >= 0 && n <= 1 << 20 ? (int)n : otherwise;
}

static bool processes_find(struct launcher *out, const char *name, const char *ranks, const char *rank, bool ends_all) {
    *out = (struct launcher){name, processes_number_of(ranks, 0), 0, ends_all};
    if (out->ranks > 1)
        out->rank = processes_number_of(rank, 0);
    return out->ranks > 0;
}

struct launcher launcher_find(void) {
    // The innermost launcher first: mpirun and torchrun may run inside a job of Slurm.
    struct launcher l;
    if (processes_find(&l, "mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", true) ||
        processes_find(&l, getenv("SLURM_STEP_ID") ? "srun" : "mpirun", "PMI_SIZE", "PMI_RANK", false)) // MPICH's
        return l;
    // A Slurm job's script may set these two to what Slurm says: then they are not torchrun's.
    if (getenv("RANK") && processes_find(&l, "torchrun", "WORLD_SIZE", "RANK", true) &&
        l.ranks > processes_number_of("SLURM_NTASKS", 1))
        return l;
    if (processes_find(&l, "srun", "SLURM_NTASKS", "SLURM_PROCID", false))
        return l;
    return (struct launcher){.ranks = 1};
}

static bool processes_is(const struct launcher *launcher, const char *name) {
    return launcher->name && strcmp(launcher->name, name) == 0;
}

static bool is_srun(const struct launcher *launcher) {
    return processes_is(launcher, "srun");
}

int launcher_processes(const struct launcher *launcher) {
    static const char *const INTERACTIVE = "4294967290"; // the step that salloc starts a shell in
    const char *step = getenv("SLURM_STEP_ID");
    bool is_script = is_srun(launcher) && (!step || strcmp(step, INTERACTIVE) == 0);
    return is_script || processes_is(launcher, "torchrun") ? 1 : launcher->ranks;
}

bool launcher_means_processes(const struct launcher *launcher, const struct config *config) {
    const bool in_script = is_srun(launcher) && launcher_processes(launcher) == 1;
    return launcher->ranks > 1 && !(in_script && config_is_set(config, "parallelism.ranks"));
}

static trireme_status refuse_launcher(const struct launcher *launcher, int seen, trireme_error *error) {
    const char *version = world_mpi_version();
    if (is_srun(launcher))
        FAIL(TRIREME_ERROR_USAGE, "Slurm has %d tasks, but MPI sees %s: start with `srun --mpi=%s -n %d trireme ...`",
             launcher->ranks, counted(seen, "rank").text, strcmp(version, "MPICH") == 0 ? "pmi2" : "pmix",
             launcher->ranks);
    FAIL(TRIREME_ERROR_USAGE,
         "mpirun has started %d processes, but MPI sees %s: this trireme was built with %s, start it with "
         "`mpirun.%s -n %d trireme ...`",
         launcher->ranks, counted(seen, "rank").text, version, strcmp(version, "MPICH") == 0 ? "mpich" : "openmpi",
         launcher->ranks);
}

// Refuses launchers under which MPI cannot start. Under Slurm without PMIx, Open MPI would end the process, with a page
// of advice.
static trireme_status check_before(const struct launcher *launcher, trireme_error *error) {
    const char *version = world_mpi_version();
    if (processes_is(launcher, "torchrun"))
        FAIL(TRIREME_ERROR_USAGE,
             "WORLD_SIZE and RANK say that torchrun has started %d processes, which cannot be ranks here: start them "
             "with `mpirun -n %d trireme ...`, or unset those two",
             launcher->ranks, launcher->ranks);
    if (version && strcmp(version, "Open MPI") == 0 && is_srun(launcher) && getenv("SLURM_STEP_ID") &&
        !getenv("PMIX_NAMESPACE"))
        return refuse_launcher(launcher, 1, error);
    return TRIREME_OK;
}

// ---- what all must agree on

struct verdict {
    int32_t status;
    char host[HOST_BYTES];
    trireme_error error;
};

// The first failure of any rank becomes that of all; only rank 0 has its text.
static trireme_status processes_agree(struct communicator *control, const struct world_place *place,
                                      trireme_status status, trireme_error *error) {
    struct verdict own = {.status = (int32_t)status}, *all = mem_alloc((size_t)place->ranks * sizeof *all);
    if (status != TRIREME_OK)
        own.error = *error;
    snprintf(own.host, sizeof own.host, "%s", place->host);
    trireme_status gathered = comm_all_gather_bytes(control, &own, all, sizeof own, error);
    int first = -1, failed = 0;
    for (int r = place->ranks - 1; r >= 0 && gathered == TRIREME_OK; r--)
        if (all[r].status != TRIREME_OK) {
            first = r;
            failed++;
        }
    if (gathered == TRIREME_OK && first >= 0) {
        gathered = error_set(error, (trireme_status)all[first].status, "%s", all[first].error.message);
        if (failed < place->ranks)
            error_prefix(error, gathered, "rank %d on %s", first, all[first].host);
        if (place->rank > 0)
            error_leave_to_other(error);
    }
    free(all);
    return gathered;
}

// The first line of `text` that differs from `other`, without a comment at its end, but with the section that it is in.
static void odd_line(const char *text, const char *other, char line[LINE_BYTES]) {
    size_t n = strcspn(text, "\n"), m = strcspn(other, "\n"), section_length = 0;
    const char *section = text;
    while (n == m && memcmp(text, other, n) == 0 && text[n] && other[m]) {
        if (n > 0 && text[0] != ' ' && text[n - 1] == ':') {
            section = text;
            section_length = n - 1;
        }
        text += n + 1;
        other += m + 1;
        n = strcspn(text, "\n");
        m = strcspn(other, "\n");
    }
    size_t blanks = strspn(text, " ");
    n = MIN(n, strcspn(text, "#"));
    while (n > blanks && text[n - 1] == ' ')
        n--;
    if (blanks == 0)
        section_length = 0;
    snprintf(line, LINE_BYTES, "%.*s%s%.*s", (int)section_length, section, section_length ? "." : "",
             (int)(n > blanks ? n - blanks : 0), text + blanks);
}

// Appends "; ranks 2, 4 to 7 differ from rank 0", if more than one does.
static void add_differing(struct text *out, const int32_t *differs, int ranks) {
    int count = 0;
    for (int r = 1; r < ranks; r++)
        count += differs[r];
    if (count < 2)
        return;
    const char *separator = "; ranks ";
    for (int r = 1, last; r < ranks; r = last + 1) {
        for (last = r; differs[r] && last + 1 < ranks && differs[last + 1];)
            last++;
        last -= last == r + 1; // two are listed one by one
        if (differs[r])
            text_add(out, last > r ? "%s%d to %d" : "%s%d", separator, r, last);
        separator = differs[r] ? ", " : separator;
    }
    text_add(out, " differ from rank 0");
}

static trireme_status processes_compare(const char *theirs, const char *own, const int32_t *differs,
                                        const struct world_place *place, trireme_error *error) {
    char there[LINE_BYTES], here[LINE_BYTES];
    if (!differs[place->rank])
        return TRIREME_OK;
    odd_line(theirs, own, there);
    odd_line(own, theirs, here);
    struct text others = {0};
    add_differing(&others, differs, place->ranks);
    error_set(error, TRIREME_ERROR_USAGE, "the ranks disagree: rank 0 has \"%s\", rank %d on %s has \"%s\"%s", there,
              place->rank, place->host, here, others.text ? others.text : "");
    text_release(&others);
    return TRIREME_ERROR_USAGE;
}

// Compares `own` with rank 0's text.
static trireme_status check_same(struct communicator *control, const struct world_place *place, const char *own,
                                 trireme_error *error) {
    int64_t bytes = (int64_t)strlen(own) + 1;
    TRY(comm_broadcast(control, &bytes, sizeof bytes, 0, error));
    char *theirs = mem_alloc((size_t)bytes);
    int32_t *differs = mem_alloc((size_t)place->ranks * sizeof *differs);
    if (place->rank == 0)
        memcpy(theirs, own, (size_t)bytes);
    trireme_status status = comm_broadcast(control, theirs, bytes, 0, error);
    const int32_t differ = status == TRIREME_OK && strcmp(theirs, own) != 0;
    if (status == TRIREME_OK)
        status = comm_all_gather(control, &differ, differs, 1, DTYPE_I32, error);
    if (status == TRIREME_OK)
        status = processes_agree(control, place, processes_compare(theirs, own, differs, place, error), error);
    free(differs);
    free(theirs);
    return status;
}

// ---- settings that follow from the launcher

static trireme_status set_ranks(struct config *config, const struct launcher *launcher, const struct world_place *place,
                                trireme_error *error) {
    if (config->parallelism.ranks && config->parallelism.ranks != place->ranks)
        return config_refuse(config, "parallelism.ranks", error,
                             "but %d processes were started: leave it out, or start with -n %lld", place->ranks,
                             (long long)config->parallelism.ranks);
    char ranks[16], origin[32];
    snprintf(ranks, sizeof ranks, "%d", place->ranks);
    snprintf(origin, sizeof origin, "%s -n %d", launcher->name, place->ranks);
    return config->parallelism.ranks ? TRIREME_OK : config_set(config, "parallelism.ranks", ranks, origin, error);
}

static trireme_status check_threads(const struct config *config, const struct launcher *launcher,
                                    const struct world_place *place, trireme_error *error) {
    int64_t threads = config->training.threads;
    if (threads <= 1 || threads * place->core_ranks <= place->cores)
        return TRIREME_OK;
    const struct counted cores = counted(place->cores, "core");
    char *where = place->core_ranks == 1
                      ? mem_printf("but each rank on %s is bound to %s", place->host, cores.text)
                      : mem_printf("but %d ranks on %s share %s", place->core_ranks, place->host, cores.text);
    long all = sysconf(_SC_NPROCESSORS_ONLN) / place->core_threads, fit = MAX(1, all / place->node_ranks);
    trireme_status status;
    if (threads > fit)
        status = config_refuse(config, "training.threads", error,
                               "%s, and there is room for %s each on its %s: give fewer, or leave it out", where,
                               counted(fit, "thread").text, counted(all, "core").text);
    else if (is_srun(launcher)) // which counts hardware threads
        status = config_refuse(config, "training.threads", error,
                               "%s: start with `srun --cpus-per-task=%lld`, or leave it out", where,
                               (long long)threads * place->core_threads);
    else
        status =
            config_refuse(config, "training.threads", error,
                          "%s: start with `mpirun --map-by slot:PE=%lld`, or leave it out", where, (long long)threads);
    free(where);
    return status;
}

// Checks threads for the only process that a launcher has started, if there is a launcher.
static trireme_status check_one(const struct launcher *launcher, const struct config *config, trireme_error *error) {
    if (!launcher->name)
        return TRIREME_OK;
    char host[HOST_BYTES] = "this machine";
    gethostname(host, sizeof host - 1);
    int processors;
    free(processors_list(&processors));
    const int cores = bound_cores();
    const struct world_place place = {.ranks = 1,
                                      .node_ranks = 1,
                                      .core_ranks = 1,
                                      .cores = cores,
                                      .core_threads = MAX(1, processors / cores),
                                      .host = host};
    return check_threads(config, launcher, &place, error);
}

static trireme_status set_threads(struct config *config, const struct launcher *launcher,
                                  const struct world_place *place, struct communicator *control, trireme_error *error) {
    TRY(processes_agree(control, place, check_threads(config, launcher, place, error), error));
    // All ranks run the same programs, so all have as many threads as the rank with the fewest cores.
    int64_t threads = config->training.threads;
    const int own = MIN(place->cores / place->core_ranks, cores_of_quota("") / place->node_ranks);
    int32_t fewest = -(int32_t)(threads ? threads : MAX(1, own));
    TRY(ranks_max(control, &fewest, error));
    config->training.threads = -fewest;
    return TRIREME_OK;
}

// Fast kernels of another instruction set round differently: values that ranks hold alike would drift apart.
static trireme_status check_instructions(const struct config *config, const struct world_place *place,
                                         struct communicator *control, trireme_error *error) {
    const bool exact = config->training.kernels == CONFIG_KERNELS_REFERENCE;
    int32_t own = (int32_t)(exact ? ISA_BASE : isa_best()), first = own, least = -own;
    TRY(comm_broadcast(control, &first, sizeof first, 0, error));
    TRY(ranks_max(control, &least, error));
    trireme_status status = TRIREME_OK;
    if (own != first) {
        const char *common = isa_name((enum isa) - least);
        status =
            error_set(error, TRIREME_ERROR_USAGE,
                      "the ranks disagree: rank 0 computes with %s, rank %d on %s with %s, which rounds otherwise; "
                      "set " ISA_LIMIT "=%s in the environment of all (mpirun -x " ISA_LIMIT "=%s)",
                      isa_name((enum isa)first), place->rank, place->host, isa_name((enum isa)own), common, common);
    }
    return processes_agree(control, place, status, error);
}

static trireme_status processes_prepare(const struct launcher *launcher, struct config *config,
                                        const struct processes_work *work, const struct world_place *place,
                                        struct communicator *control, trireme_error *error) {
    TRY(processes_agree(control, place, set_ranks(config, launcher, place, error), error));
    struct text identity = {0};
    text_add(&identity, "trireme " TRIREME_VERSION ", %s\n", build_text);
    config_print(&identity, config);
    trireme_status status = check_same(control, place, identity.text, error);
    text_release(&identity);
    TRY(status);
    TRY(check_instructions(config, place, control, error));
    TRY(set_threads(config, launcher, place, control, error));
    TRY(processes_agree(control, place, work->prepare(work->user, error), error));
    if (!work->identify)
        return TRIREME_OK;
    status = processes_agree(control, place, work->identify(work->user, &identity, error), error);
    if (status == TRIREME_OK)
        status = check_same(control, place, identity.text ? identity.text : "", error);
    text_release(&identity);
    return status;
}

// ---- running

// Whether the world is broken because another rank has failed by itself, which then reports why.
static bool another_has_failed(struct world *world, int rank) {
    struct comm_failure failure;
    return world_failure(world, &failure) && failure.cause == COMM_FAILED && failure.rank != rank;
}

// Whether another rank reports that one is lost: a lower one or, if it is this one that the others have lost, any.
static bool another_speaks(struct world *world, int rank) {
    struct comm_failure failure;
    const int speaker = world_speaker(world);
    const bool at_fault = world_failure(world, &failure) && failure.cause == COMM_LOST && failure.rank == rank;
    return speaker >= 0 && (at_fault || speaker < rank);
}

// Ends the run on all ranks, and decides which of them reports the failure: the first one that fails by itself, or rank
// 0, where it fails too; where a rank is lost, the lowest that is left.
static void tell_failure(struct world *world, const struct world_place *place, trireme_error *error) {
    if (error->status != TRIREME_ERROR_LOST) {
        for (int ms = 0; place->rank > 0 && ms < PATIENCE && !world_failure(world, NULL); ms++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        char *reason = mem_printf("rank %d has failed: %s", place->rank, error->message);
        world_break(world, COMM_FAILED, place->rank, reason);
        free(reason);
    } else {
        for (int ms = 0; ms < HEARING && world_speaker(world) && !another_speaks(world, place->rank); ms++)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    const bool lost_alike = error->status == TRIREME_ERROR_LOST && another_speaks(world, place->rank);
    if (lost_alike || another_has_failed(world, place->rank))
        error_leave_to_other(error);
}

// Where the launcher lets the other processes live, rank 0 in the end reports that MPI does not start.
void processes_let_first_tell(const struct launcher *launcher, trireme_error *error) {
    bool may_be_alone = launcher->ends_all || error->status == TRIREME_ERROR_LOST;
    const struct timespec patience = {.tv_sec = START_PATIENCE * MIN(launcher->rank, 2)};
    // Sleep is interrupted by a signal when another process has reported something and the launcher ends this one.
    if (launcher->rank > 0 && !may_be_alone)
        error_leave_to_other(error);
    else if (launcher->rank > 0 && nanosleep(&patience, NULL) != 0)
        error_leave_to(error, ERROR_REPORTED_BY_LAUNCHER);
}

// Makes a world, and a communicator of all ranks.
static trireme_status processes_begin(const struct launcher *launcher, double deadline, struct world **world,
                                      struct communicator **control, trireme_error *error) {
    trireme_status status = check_before(launcher, error);
    bool started = false;
    if (status == TRIREME_OK) {
        status = world_create_mpi(world, deadline, error);
        started = status == TRIREME_OK;
    }
    if (started && world_place(*world)->ranks != launcher->ranks)
        status = refuse_launcher(launcher, world_place(*world)->ranks, error);
    if (status == TRIREME_OK)
        status = ranks_control(control, &(struct member){*world, world_place(*world)->rank}, launcher->ranks, error);
    if (status == TRIREME_OK)
        return TRIREME_OK;
    if (!started || world_place(*world)->ranks == 1)
        processes_let_first_tell(launcher, error);
    else // others may find nothing wrong, and wait for this one
        tell_failure(*world, world_place(*world), error);
    if (started)
        world_free(*world);
    return status;
}

trireme_status processes_refuse(const struct launcher *launcher, trireme_status status, trireme_error *error) {
    struct world *world;
    struct communicator *control;
    trireme_error other;
    if (processes_begin(launcher, REFUSAL_SECONDS, &world, &control, &other) != TRIREME_OK) {
        if (!error_is_reported_here(&other))
            error_leave_to(error, (enum error_reporter)other.reserved);
        return status;
    }
    status = processes_agree(control, world_place(world), status, error);
    communicator_free(control);
    world_free(world);
    return status;
}

trireme_status processes_run(const struct launcher *launcher, double deadline, struct config *config,
                             const struct processes_work *work, trireme_error *error) {
    struct world *world;
    struct communicator *control;
    TRY(processes_begin(launcher, deadline, &world, &control, error));
    const struct world_place *place = world_place(world);
    struct member member = {world, place->rank};
    trireme_status status = processes_prepare(launcher, config, work, place, control, error);
    communicator_free(control);
    if (status == TRIREME_OK) {
        status = work->body(work->user, &member, error);
        if (status != TRIREME_OK)
            tell_failure(world, place, error);
    }
    if (world_free(world) || status != TRIREME_OK || launcher->rank == 0)
        return status;
    // Another rank has failed since this one was done. It reports why, and the launcher ends it once this one has
    // ended.
    error_set(error, TRIREME_ERROR_LOST, "another rank has failed");
    error_leave_to_other(error);
    return TRIREME_ERROR_LOST;
}

// Seconds that ranks wait for others at least until all have done their first step, with which threads and memory come.
static const double START_LEAST = 20;

trireme_status processes_or_threads_run(const struct launcher *launcher, bool many, struct config *config,
                                        const struct processes_work *work, const struct mesh *mesh, bool *stuck,
                                        trireme_error *error) {
    double deadline = (double)config->comm.train_timeout_seconds;
    if (deadline > 0)
        deadline = MAX(deadline, START_LEAST);
    if (many)
        return processes_run(launcher, deadline, config, work, error);
    TRY(check_one(launcher, config, error));
    TRY(work->prepare(work->user, error));
    return ranks_run_guarded(mesh_ranks(mesh), deadline, work->body, work->user, stuck, error);
}
