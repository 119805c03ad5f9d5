// The table of commands, and what surrounds the one that runs: arguments, errors, exit codes.
#include "base/build.h"
#include "base/parallel_for.h"
#include "base/region.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "cli/exit_code.h"
#include "kernels/machine.h"
#include "launch/processes.h"

#include <errno.h>
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LAST_WORDS = 300000 }; // microseconds

const struct command commands[] = {
    {"prepare", "INPUT... --data.path=PREFIX", "turn text (.txt, .jsonl, directories, -) into token files",
     "Writes PREFIX.bin and .idx, .json and .sums (checksums). A .txt is one document; each line of a .jsonl is one, "
     "its\n"
     "text in the field data.text_field; - is standard input, read as .jsonl if it begins with {. Tokens are bytes, "
     "or\n"
     "those of data.tokenizer, which PREFIX.tokenizer/ then keeps; a document ends with its token for that.\n"
     "example: trireme prepare book.txt notes/ --data.path=text/mine\n",
     command_prepare, ALL_OF_IT, NULL, NULL},
    {"train", "CONFIG.yaml", "train, or resume the run in run.directory",
     "Keys: trireme help config; those of parallelism may be given without their section: --ranks=8. Ctrl-C saves\n"
     "and stops; the same command resumes, on any mesh.\n"
     "example: trireme train examples/shakespeare.yaml --data.path=text/mine --run.directory=runs/mine\n",
     command_train, NULL, NULL, NULL},
    {"eval", "DIR data.path=PREFIX | text=PATH | multiple_choice=FILE.jsonl",
     "loss, perplexity and bits per byte of a model; the share of questions that it answers rightly",
     "DIR is a run directory or one in Hugging Face's form. All tokens of data.path count, or the part that\n"
     "data.split sets apart; validation.steps limits the batches. A run's model gets sequences as long as the\n"
     "run's, and as many in a batch, unless training.seq_len or training.global_batch_size say otherwise. Many\n"
     "ranks share the work, and the model, as the keys of parallelism say.\n"
     "text and multiple_choice are measured as EleutherAI's lm-evaluation-harness does it, by one rank, with as many\n"
     "tokens at once as the model has positions, or as training.seq_len says. output=FILE.jsonl: each one's part.\n"
     "example: trireme eval runs/mine data.path=text/mine \"data.split=[0.9, 0.1]\"\n",
     command_eval, NULL, NULL, NULL},
    {"generate", "DIR --prompt TEXT | --batch=FILE | --chat", "continue texts with a model, or talk with it",
     "DIR is a run directory or one in Hugging Face's form, with the model's tokenizer. A text that gets longer than\n"
     "the model sees goes on with the later half of what it saw. Several texts (samples, batch) come with a line ---\n"
     "between them, with --json as one object in each line. On a terminal, control characters are shown as \\xNN.\n"
     "--chat: answers --prompt, or each line that is typed, or all of standard input that is no terminal, by the\n"
     "model's chat template.\n"
     "The keys below may be given without their section.\n"
     "example: trireme generate runs/mine --prompt \"It was\" --temperature=0.8 --top_k=40\n",
     command_generate, ALL_OF_IT, NULL, NULL},
    {"checkpoint", "list|verify|diff DIR ... | prune RUN_DIR",
     "what a run's checkpoints are, whether they are whole, how two differ; remove those that are not kept",
     "DIR: a run's directory, one that holds checkpoints, a checkpoint, or another directory in Hugging Face's form.\n"
     "list: of each the step, when it was saved, its sizes and validation loss, and why it is kept.\n"
     "verify DIR...: reads all of each, and names all that is damaged, with file, bytes and tensors.\n"
     "diff A B: the tensors of model and training state, the progress and the settings that differ; of a run its\n"
     "newest checkpoint. Files, sharding and dtypes may be others. Ends with 9 if they differ.\n"
     "prune: removes what the keys checkpoint.keep_* do not keep, as the run itself does; they may be given.\n"
     "--dry-run: only says what would go.\n"
     "example: trireme checkpoint prune runs/mine --checkpoint.keep_latest_k=1 --dry-run\n",
     command_checkpoint, ALL_OF_IT, NULL, NULL},
    {"show", "program|memory|timeline|mesh CONFIG.yaml | ranks RUN_DIR",
     "the training step as text, its memory, or a trace of it; how ranks are arranged; where they stand",
     "program: every buffer and instruction. memory: bytes over the step and the largest tensors at the peak. With\n"
     "many ranks, --rank=3 chooses one; --show.program=evaluate chooses another program than the training step.\n"
     "timeline: two real steps on random tokens, the second as a Chrome trace, which Perfetto opens; where islands\n"
     "meet, a step and then a meeting, with the steps beside it. --show.program=NAME: that program alone.\n"
     "mesh: each rank's coordinates, layers and neighbours in the pipeline; the groups along each axis, its factors\n"
     "and products of axes, and what is communicated over them; --rank=3 for one rank's groups and neighbours in\n"
     "each. cluster=CLUSTER says which node and device a rank is on; svg=FILE draws it.\n"
     "ranks: what each rank of a run does or did last, and for whom it waits; also of a run that has died.\n"
     "example: trireme show memory --model.preset=gpt2-124m\n",
     command_show, ALL_OF_IT, "ranks", "program"},
    {"verify", "CONFIG.yaml", "prove the programs of a run without running them",
     "Every run proves its programs before it starts; this does nothing else, and needs neither data nor memory.\n"
     "example: trireme verify --model.preset=llama3.1-405b\n",
     command_verify, ALL_OF_IT, NULL, NULL},
    {"simulate", "CONFIG.yaml cluster=CLUSTER | schedule=NAME ...",
     "predict a step on a cluster, or what a pipeline schedule costs",
     "CLUSTER: a name (trireme help clusters) or a file; devices=N takes its first N devices; the keys of\n"
     "parallelism say how many ranks train. trace=FILE writes a Chrome trace of trace_ranks=0,8 or all, by default\n"
     "of one rank of each kind; svg=FILE a picture of the pipeline. Where islands meet, both are of a meeting with\n"
     "the steps beside it, and the output has the time of all steps from one meeting to the next.\n"
     "island_bandwidth=100Mbit/s island_latency=20ms: of the link of an island, instead of the cluster's.\n"
     "schedule=NAME stages=P microbatches=M needs no model. NAME: one of trireme help schedules, or the path of a\n"
     "file. forward, backward_input, backward_weight: times of one chunk and one microbatch; latency: time from\n"
     "rank to rank; chunks; waves (of hanayo); activation_limit (of auto, in microbatches of a stage, by default\n"
     "2P). embed, loss, loss_weight, embed_weight: times of one rank's part of a vocabulary that is spread over the\n"
     "ranks. svg=FILE draws the schedule, save=FILE writes it as a file.\n"
     "cost: the largest, over ranks, of last end minus first start; bubble: 1 - work / cost.\n"
     "example: trireme simulate --model.preset=llama3-8b --training.dtype=bf16 --ranks=8 cluster=h100\n",
     command_simulate, ALL_OF_IT, NULL, NULL},
    {"plan", "MODEL|CONFIG.yaml cluster=CLUSTER [devices=N]", "search for the best ways to train a model on a cluster",
     "MODEL: a name (trireme help models). Keys that are set are kept; those of training, parallelism and\n"
     "activation_checkpoint may be given without their section. Of mesh, ZeRO stage, units, prefetch, sequence\n"
     "parallel, overlap, schedule, chunks, layout, vocabulary, microbatch, recompute and logits_rows, what is not\n"
     "set is searched.\n"
     "devices: by default all of the cluster; dtype: by default bf16 if the devices have it.\n"
     "seconds=S: how long it may search, by default 40.\n"
     "With island_degree=N outer.method=METHOD the plan is for one island, and the interval outer.sync_steps is the\n"
     "first that leaves island_share=0.95 of the speed of steps alone, on links of island_bandwidth=1Gbit/s\n"
     "island_latency=20ms, by default the cluster's.\n"
     "save=FILE.yaml writes the best plan as a configuration; export=megatron|torchtitan prints it for those\n"
     "systems.\n"
     "The list: of plans with the same tensor and pipeline parallel degrees, schedule and microbatch, the fastest\n"
     "(\"7 like it within 0.4%\": others of these that were simulated), and those that free a tenth of the memory\n"
     "more for their time. \"selective recompute of 39 layers\": save= and --json say which (trireme help\n"
     "activation_checkpoint).\n"
     "example: trireme plan llama3-70b devices=512 cluster=h100 global_batch_size=1024 seq_len=8192 seconds=9\n",
     command_plan, ALL_OF_IT, NULL, NULL},
    {"bench", "peak|step [CONFIG.yaml] | calibrate [out=FILE]",
     "what the machine can do, and what a training step does",
     "peak: a loop of multiply-adds that stays in registers.\n"
     "step: a training step on random tokens, op by op, and its share of that peak; the median over some seconds,\n"
     "of training.steps steps at most. Without a model, GPT-2 124M with 4 sequences of 1024 tokens.\n"
     "calibrate: writes a cluster file of this machine for trireme simulate; nothing else should run meanwhile.\n"
     "models=N measures only N of its models, the smallest one first, steps=N so many steps of each. With\n"
     "from=FILE,FILE cluster=CLUSTER it instead puts another machine's figures into a cluster: matrix products as a\n"
     "CSV with the columns m, n, k, dtype and seconds or tflops, collectives as nccl-tests prints them.\n"
     "example: trireme bench step examples/shakespeare.yaml --training.dtype=bf16\n",
     command_bench, "peak", NULL, NULL},
    {"tokenizer", "encode|decode|show|chat FILE_OR_DIR | train INPUT... --output=DIR",
     "text to token ids and back; what a tokenizer is; a new one",
     "FILE_OR_DIR: a tokenizer.json, a .model of sentencepiece, ranks of tiktoken, a tekken.json, or a directory with\n"
     "one of them, such as a run's. tokenizer_config.json beside it says how texts begin and end. Ranks whose\n"
     "number is that of no known tokenizer need --pattern=cl100k, another name, or a regular expression, by which\n"
     "text is cut.\n"
     "encode: reads a text from standard input and prints its ids on one line. What is not UTF-8 counts as U+FFFD.\n"
     "decode: reads ids from standard input, with blanks between them, and prints their text.\n"
     "--lines: each line is a text, or has the ids of one. --special: encode adds the special tokens that the\n"
     "tokenizer puts around a text, decode shows those that it finds.\n"
     "show: kind, sizes, special tokens, steps from text to ids and back, versions of Unicode.\n"
     "chat: reads chats or texts from standard input, one a line as `trireme prepare` has them, and prints what they\n"
     "become for a model; --json also prints their ids, and which of these are answers: it is trained on those alone.\n"
     "--data.chat_template=NAME replaces the tokenizer's template.\n"
     "train: learns byte-level BPE from text as `trireme prepare` reads it. The keys below may be given without their\n"
     "section.\n"
     "example: trireme tokenizer train book.txt --output=tokenizers/mine --vocab_size=4096\n",
     command_tokenizer, ALL_OF_IT, NULL, NULL},
    {"convert", "IN OUT", "a model in other numbers, other files, or the format of another program",
     "IN: a run's directory (its newest checkpoint), one in Hugging Face's form, or llm.c's .bin. OUT, which must not\n"
     "exist: a directory in Hugging Face's form, without training state; NAME.gguf, for llama.cpp; or NAME.bin, for\n"
     "llm.c. The keys below may be given without their section.\n"
     "example: trireme convert runs/mine mine.gguf --dtype=q8_0\n",
     command_convert, ALL_OF_IT, NULL, NULL},
    {"help", "[COMMAND|SECTION|KEY|config|models|clusters|schedules|context_parallel|exit_codes] | completion bash|zsh",
     "this, a command, configuration keys, named models, clusters and schedules, context parallelism, or exit codes",
     "completion: the script by which a shell completes commands, keys and named values; `make install` puts it in "
     "place.\n"
     "example: trireme help optimizer\n",
     command_help, NULL, ALL_OF_IT, NULL},
};
const size_t command_count = ARRAY_LENGTH(commands);

// Options that are words alone. `command`: the one that has it, perhaps for one operand alone; NULL: all have it.
const struct flag flags[] = {
    {"--json", offsetof(struct arguments, json), NULL, NULL},
    {"--help", offsetof(struct arguments, help), NULL, NULL},
    {"-h", offsetof(struct arguments, help), NULL, NULL},
    {"--dry-run", offsetof(struct arguments, dry_run), "checkpoint", "prune"},
    {"--lines", offsetof(struct arguments, lines), "tokenizer", NULL},
    {"--chat", offsetof(struct arguments, chat), "generate", NULL},
    {"--special", offsetof(struct arguments, special), "tokenizer", NULL},
};
const size_t flag_count = ARRAY_LENGTH(flags);

static bool *flag_of(struct arguments *a, const struct flag *flag) {
    return (bool *)((char *)a + flag->offset);
}

static const struct flag *find_flag(const char *word) {
    for (size_t i = 0; i < flag_count; i++)
        if (strcmp(flags[i].word, word) == 0)
            return &flags[i];
    return NULL;
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < command_count; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static bool is_told(const trireme_error *error) {
    return error->message[0] && error_is_reported_here(error);
}

static int refuse_name(const char *name, const struct launcher *launcher) {
    const char *nearest = text_nearest(name, &commands[0].name, command_count, sizeof commands[0]);
    trireme_error error;
    if (*name == '-')
        error_set(&error, TRIREME_ERROR_USAGE, "a command comes before %s; `trireme help` lists all", name);
    else
        error_set(&error, TRIREME_ERROR_USAGE, "there is no command %s%s%s%s `trireme help` lists all", name,
                  nearest ? "; did you mean " : ";", nearest ? nearest : "", nearest ? "?" : "");
    processes_let_first_tell(launcher, &error);
    if (is_told(&error))
        console_tell(CONSOLE_ERRORS, CONSOLE_RESULT, "trireme: %s\n", error.message);
    return exit_code(error.status);
}

// section.key=value, or key=value. A path may have an '=' too, but then with a slash before it, or it names a file.
static bool is_setting(const char *word) {
    const char *equals = strchr(word, '='), *dot = strchr(word, '.'), *slash = strchr(word, '/');
    if (!equals || equals == word || (slash && slash < equals))
        return false;
    return (dot && dot < equals) || access(word, F_OK) != 0;
}

// Operands are words that are neither options nor settings; an option without '=' takes the next word.
static void sort_arguments(struct arguments *out, int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        const struct flag *flag = find_flag(word);
        if (flag) {
            *flag_of(out, flag) = true;
        } else if (strncmp(word, "--", 2) == 0) {
            VEC_PUSH(&out->settings, word);
            if (!strchr(word, '=') && i + 1 < argc)
                VEC_PUSH(&out->settings, argv[++i]);
        } else if (is_setting(word)) {
            VEC_PUSH(&out->settings, word);
        } else {
            VEC_PUSH(&out->operands, word);
        }
    }
}

// Refuses to run a command as many processes, each of which would write the same files. Only the first one reports it.
static trireme_status main_refuse_many(const struct arguments *a, const struct launcher *launcher,
                                       trireme_error *error) {
    const struct command *command = a->command;
    int processes = launcher_processes(launcher);
    if (processes < 2 || !arguments_ask_for(a, command->alone))
        return TRIREME_OK;
    error_set(error, TRIREME_ERROR_USAGE,
              "%s runs as one process, but the launcher started %d: run it without mpirun or srun",
              strcmp(command->alone, ALL_OF_IT) == 0 ? command->name : command->alone, processes);
    processes_let_first_tell(launcher, error);
    return TRIREME_ERROR_USAGE;
}

// The shell turns `--data.path shards/*.bin` into many words, of which all but the first would be taken for
// configurations.
static trireme_status refuse_spread_pattern(const struct arguments *a, trireme_error *error) {
    bool apart = false;
    for (size_t i = 0; i < a->settings.count; i++)
        apart |= strncmp(a->settings.item[i], "--data.", 7) == 0 && !strchr(a->settings.item[i], '=');
    for (size_t i = 0; i < a->operands.count && apart; i++) {
        const char *word = a->operands.item[i], *dot = strrchr(word, '.');
        if (dot && strcmp(dot, ".bin") == 0)
            FAIL(TRIREME_ERROR_USAGE,
                 "unexpected \"%s\": give several token files as one pattern, in quotes: "
                 "\"--data.path=shards/*.bin\"",
                 word);
    }
    return TRIREME_OK;
}

static trireme_status refuse_foreign_flags(const struct arguments *a, trireme_error *error) {
    for (size_t i = 0; i < flag_count; i++) {
        const struct flag *f = &flags[i];
        const bool has = !f->command || (strcmp(f->command, a->command->name) == 0 &&
                                         (!f->operand || arguments_ask_for(a, f->operand)));
        if (!has && *flag_of((struct arguments *)a, f))
            FAIL(TRIREME_ERROR_USAGE, "unexpected \"%s\": only `trireme %s%s%s` has it", f->word, f->command,
                 f->operand ? " " : "", f->operand ? f->operand : "");
    }
    return TRIREME_OK;
}

// Words that would otherwise be ignored, or taken for a file.
static trireme_status refuse_unused(const struct arguments *a, trireme_error *error) {
    const struct command *command = a->command;
    for (size_t i = 0; i < a->operands.count; i++)
        if (a->operands.item[i][0] == '-' && a->operands.item[i][1])
            FAIL(TRIREME_ERROR_USAGE, "unexpected \"%s\": a setting is written --section.key=value (trireme help %s)",
                 a->operands.item[i], command->name);
    TRY(refuse_spread_pattern(a, error));
    if (a->settings.count && arguments_ask_for(a, command->bare))
        FAIL(TRIREME_ERROR_USAGE, "unexpected \"%s\": %s %s takes no settings", a->settings.item[0], command->name,
             a->operands.count ? a->operands.item[0] : "by itself");
    TRY(refuse_foreign_flags(a, error));
    if (a->json && arguments_ask_for(a, command->text))
        FAIL(TRIREME_ERROR_USAGE, "a %s is text: leave --json out", command->text);
    return TRIREME_OK;
}

static void end_without_memory(size_t bytes) {
    (void)bytes;
    _exit(exit_code(TRIREME_ERROR_MEMORY));
}

// If the environment makes OpenMP keep threads to places (OMP_PROC_BIND, OMP_PLACES), the first thread is kept to its
// place from the start, and all threads that it makes would be there too. So it takes all those places, and OpenMP is
// told to bind nothing. Returns whether the environment was changed.
static bool leave_place(void) {
    int *processor = NULL, count = 0;
    for (int place = 0; omp_get_proc_bind() != omp_proc_bind_false && place < omp_get_num_places(); place++) {
        processor = mem_resize(processor, (size_t)(count + omp_get_place_num_procs(place) + 1) * sizeof *processor);
        omp_get_place_proc_ids(place, processor + count);
        count += omp_get_place_num_procs(place);
    }
    if (count > 0)
        processors_keep_to(processor, count);
    free(processor);
    return count > 0 && setenv("OMP_PROC_BIND", "false", 1) == 0;
}

// Where the system gives the stack less than a thread needs (ulimit -s), asks for that much. Returns whether it was
// given: then the program is to be started again, since libraries take their threads' stacks from what was there when
// they were loaded.
static bool raise_stack(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= THREAD_STACK_LEAST)
        return false;
    limit.rlim_cur = THREAD_STACK_LEAST;
    limit.rlim_max = MAX(limit.rlim_max, limit.rlim_cur);
    return setrlimit(RLIMIT_STACK, &limit) == 0;
}

static trireme_status check_stack(trireme_error *error) {
    enum { STACK_LEAST = 256 << 10 }; // of the first thread, which does less than others may
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < STACK_LEAST)
        FAIL(TRIREME_ERROR_MEMORY, "the stack may have %llu kB, and needs %d kB: raise the limit (ulimit -s)",
             (unsigned long long)limit.rlim_cur / 1024, STACK_LEAST / 1024);
    return TRIREME_OK;
}

// Idle OpenMP threads wait by spinning. If they go to sleep within microseconds, small models lose a tenth of their
// speed; if they spin for milliseconds, as they do by default, two trainings on the same cores lose a third. Where the
// environment lets OpenMP use fewer threads than it is told (OMP_DYNAMIC), it does so beside other load, and a step
// takes twice as long. OpenMP reads all this and the places only when the program is loaded: so set them, and start the
// program again, once.
static void settle_threads(char **argv) {
    const bool spins = !getenv("GOMP_SPINCOUNT") && !getenv("OMP_WAIT_POLICY"), drops = omp_get_dynamic(),
               left = leave_place(), raised = raise_stack();
    if (spins)
        setenv("GOMP_SPINCOUNT", "30000", 1); // about half a millisecond, one and a half where pauses are long
    if (drops)
        setenv("OMP_DYNAMIC", "false", 1);
    if (spins || left || drops || raised)
        execv("/proc/self/exe", argv);
}

// UCX, which Open MPI 5 links, catches SIGHUP when it is loaded, even if nohup made the process ignore it. What counts
// is the action before any library was loaded.
static struct sigaction hang_up;

static void note_hang_up(void) {
    sigaction(SIGHUP, NULL, &hang_up);
}

__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(void) = note_hang_up;

// Several ranks may have something to report, but once the first has ended, mpirun ends the others, or drops what they
// say. So each waits before it ends. A rank that reports nothing waits longer, since mpirun takes the status of the
// first one that ends. srun also ends the others, but takes the highest status of all: ranks that were stopped end
// together, and signals are ignored so that none changes their status.
static void await_others(trireme_status status, bool tells) {
    const int signals[] = {SIGINT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < ARRAY_LENGTH(signals); i++)
        signal(signals[i], SIG_IGN);
    usleep(tells || status == TRIREME_ERROR_INTERRUPTED ? LAST_WORDS : 2 * LAST_WORDS);
}

// Files that are opened must not take the place of a standard stream that is closed: what is written to it would come
// into them. It is held so that reading or writing is refused as before.
static void hold_closed_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            exit(exit_code(TRIREME_ERROR_IO)); // there is nothing to say it to
}

// Returns `code`, or what stands for output that could not be written.
static int end_output(const char *name, int code, int patience) {
    trireme_error error, unheard;
    const trireme_status status = console_end(patience, &error);
    if (status == TRIREME_OK || code != exit_code(TRIREME_OK))
        return code;
    console_tell(CONSOLE_ERRORS, CONSOLE_RESULT, "trireme %s: %s\n", name, error.message);
    console_end(patience, &unheard);
    return exit_code(status);
}

// Only a training saves what was done when it is interrupted. The code of a rank that leaves it to another to report
// why all end is the lowest: srun gives the highest of all.
static int code_of(const struct command *command, trireme_status status, bool tells) {
    if (status == TRIREME_ERROR_INTERRUPTED)
        return command->run == command_train ? exit_code(status) : EXIT_UNSAVED;
    return exit_code(status == TRIREME_ERROR_LOST && !tells ? TRIREME_ERROR_PROGRAM : status);
}

int main(int argc, char **argv) {
    sigaction(SIGHUP, &hang_up, NULL);
    hold_closed_streams();
    settle_threads(argv);
    mem_at_end(end_without_memory);
    memory_share_heap();
    prctl(PR_SET_NAME, "trireme"); // started again, it has the name "exe" in ps and top
    signal(SIGXFSZ, SIG_IGN);      // a full file is an error to report, not a death
    if (argc >= 2 && strcmp(argv[1], "--version") == 0) {
        printf("trireme " TRIREME_VERSION " (%s)\n", build_text);
        return end_output(argv[1], exit_code(TRIREME_OK), CONSOLE_FOR_EVER);
    }
    const char *name = argc < 2 ? "help" : argv[1];
    bool overview = strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0;
    const struct command *command = find_command(overview ? "help" : name);
    struct launcher launcher = launcher_find();
    if (!command)
        return refuse_name(name, &launcher);
    struct arguments arguments = {.command = command};
    // A command ends when nobody reads its output any more; only training goes on.
    signal(SIGPIPE, command->run == command_train ? SIG_IGN : SIG_DFL);
    // A launcher ends all ranks when the first has ended: a rank that has something to report must survive for a
    // moment.
    if (launcher_processes(&launcher) > 1 && command->run != command_help)
        stop_on_signals();
    sort_arguments(&arguments, argc - 2, argv + 2);
    arguments.json &= !overview;
    const bool helps = arguments.help || command->run == command_help;
    if (helps && launcher.rank > 0 && launcher_processes(&launcher) > 1)
        return exit_code(TRIREME_OK); // all would print the same
    trireme_error error = {0};
    trireme_status status;
    if (arguments.help && command->run != command_help) {
        arguments.operands.count = 0;
        VEC_PUSH(&arguments.operands, (char *)command->name);
        arguments.json = false;
        status = command_help(&arguments, &error);
    } else {
        status = check_stack(&error);
        if (status == TRIREME_OK)
            status = isa_check_limit(&error);
        if (status != TRIREME_OK)
            processes_let_first_tell(&launcher, &error);
        if (status == TRIREME_OK)
            status = main_refuse_many(&arguments, &launcher, &error);
        if (status == TRIREME_OK)
            status = refuse_unused(&arguments, &error);
        if (status == TRIREME_OK)
            status = command->run(&arguments, &error);
    }
    progress_clear();
    if (status != TRIREME_OK && is_told(&error))
        console_tell(CONSOLE_ERRORS, CONSOLE_RESULT, "trireme %s: %s\n", command->name, error.message);
    if (status != TRIREME_OK && launcher_processes(&launcher) > 1)
        await_others(status, is_told(&error));
    VEC_RELEASE(&arguments.operands);
    VEC_RELEASE(&arguments.settings);
    const int code = argc < 2 ? exit_code(TRIREME_ERROR_USAGE) : code_of(command, status, is_told(&error));
    return end_output(command->name, code, command->run == command_train ? CONSOLE_PATIENCE : CONSOLE_FOR_EVER);
}
