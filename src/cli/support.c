// What the commands share: configuration from arguments, signals, output, the live line.
#include "base/clock.h"
#include "base/json.h"
#include "ckpt/directory.h"
#include "cli/cli.h"
#include "cli/console.h"
#include "compile/stages.h"
#include "launch/processes.h"
#include "model/model.h"
#include "run/checkpoint.h"
#include "sim/topology.h"
#include "tokenizer/tokenizer.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

trireme_status arguments_refuse(const struct arguments *a, trireme_status status, trireme_error *error) {
    struct launcher launcher = launcher_find();
    bool many = launcher.ranks > 1 && a->command->run != command_help && !arguments_ask_for(a, a->command->alone);
    return many ? processes_refuse(&launcher, status, error) : status;
}

bool arguments_ask_for(const struct arguments *a, const char *part) {
    return part && (strcmp(part, ALL_OF_IT) == 0 || (a->operands.count && text_lists(part, a->operands.item[0])));
}

// Whether the file describes a model, as Hugging Face's config.json does. A file of any other ending is not read, since
// it may be a pipe.
static bool describes_model(const char *path) {
    enum { LIMIT = 1 << 20 };
    json_t *root = NULL;
    trireme_error none;
    if (!text_ends(path, ".json") || json_parse_file(path, LIMIT, &root, &none) != TRIREME_OK)
        return false;
    bool is = json_object_get(root, "model_type") || json_object_get(root, "architectures");
    json_decref(root);
    return is;
}

// Refuses what is given in place of a configuration file but is something else that is known: a run's directory, a
// Hugging Face model, or the name of a model.
static trireme_status refuse_operand(const char *path, trireme_error *error) {
    struct model_config model;
    trireme_error none;
    char *inside = path ? mem_printf("%s/config.yaml", path) : mem_strdup("");
    bool is_run = access(inside, F_OK) == 0;
    free(inside);
    inside = path ? mem_printf("%s/config.json", path) : mem_strdup("");
    bool is_model = describes_model(inside);
    free(inside);
    if (is_run)
        FAIL(TRIREME_ERROR_USAGE, "%s is a run's directory: its configuration is %s/config.yaml", path, path);
    if (is_model || (path && describes_model(path)))
        FAIL(TRIREME_ERROR_USAGE, "%s describes a model: its sizes are given by --model.config=%s%s", path, path,
             is_model ? ", its weights too by --model.init_from" : "");
    if (path && access(path, F_OK) != 0 && model_config_preset(&model, path, &none) == TRIREME_OK)
        FAIL(TRIREME_ERROR_USAGE, "%s: cannot open: the model of that name is given by --model.preset=%s", path, path);
    return TRIREME_OK;
}

trireme_status arguments_config(const struct arguments *a, const char *path, struct config *out, trireme_error *error) {
    trireme_status status = refuse_operand(path, error);
    if (status == TRIREME_OK)
        status = config_load_arguments(out, path, a->command->name, (int)a->settings.count, a->settings.item, error);
    return status == TRIREME_OK ? status : arguments_refuse(a, status, error);
}

trireme_status arguments_expect(const struct arguments *a, size_t least, size_t most, trireme_error *error) {
    bool empty = false; // as a shell makes of an unset "$VARIABLE"
    for (size_t i = 0; i < a->operands.count; i++)
        empty |= !*a->operands.item[i];
    if (a->operands.count >= least && a->operands.count <= most && !empty)
        return TRIREME_OK;
    char *extra = empty                      ? mem_strdup("unexpected \"\"; ")
                  : a->operands.count > most ? mem_printf("unexpected \"%s\"; ", a->operands.item[most])
                                             : mem_strdup("");
    const bool bare = a->command->bare && strcmp(a->command->bare, ALL_OF_IT) == 0;
    trireme_status status = error_set(error, TRIREME_ERROR_USAGE, "%susage: trireme %s %s%s", extra, a->command->name,
                                      a->command->operands, bare ? "" : " [--section.key=value ...]");
    free(extra);
    return arguments_refuse(a, status, error);
}

trireme_status arguments_tokenizer(const char *path, const struct config *config, struct tokenizer **out,
                                   trireme_error *error) {
    const char *pattern = config_is_set(config, "tokenizer.pattern") ? config->tokenizer.pattern : NULL;
    char *checkpoints = mem_printf("%s/checkpoint", path), *model = NULL, *where = NULL;
    const bool is_run = !file_missing(checkpoints);
    int hold = -1;
    free(checkpoints);
    if (!is_run)
        return tokenizer_load_with(path, pattern, out, error);
    TRY(checkpoint_find(path, &model, &hold, error));
    trireme_status status = checkpoint_tokenizer(&where, model, config->lora.base_model, error);
    if (status == TRIREME_OK)
        status = tokenizer_load_with(where, pattern, out, error);
    directory_let_go(hold);
    free(model);
    free(where);
    return status;
}

trireme_status check_dtype_on(const struct config *config, const struct cluster *cluster, int ranks,
                              trireme_error *error) {
    const struct device *d = topology_without(cluster, ranks, model_dtype(config));
    if (d)
        return config_refuse(config, "training.dtype", error, "but %s has no peak for it in %s", d->name,
                             cluster->name);
    return TRIREME_OK;
}

trireme_status check_output(const char *key, const char *path, trireme_error *error) {
    int kept; // open for the rest of the process: a reader of a pipe would take a close for the end
    if (file_is_device(path))
        return file_open_device(path, &kept, error) == TRIREME_OK ? TRIREME_OK
                                                                  : error_prefix(error, TRIREME_ERROR_USAGE, "%s", key);
    char *folder = mem_strdup(path), *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    struct stat info;
    bool found = access(slash ? folder : ".", W_OK) == 0;
    int reason = errno;
    if (found && stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        found = false;
        reason = EISDIR;
    }
    free(folder);
    if (!found)
        FAIL(TRIREME_ERROR_USAGE, "%s=%s: cannot be written there: %s", key, path, strerror(reason));
    return TRIREME_OK;
}

static atomic_bool stop, asked;

static void on_signal(int number) {
    if (asked)
        _exit(128 + number);
    asked = stop = true;
}

// A second SIGHUP does not mean that somebody asks twice: when a terminal is closed, the system and its shell each send
// one.
static void on_hang_up(int number) {
    (void)number;
    stop = true;
}

const atomic_bool *stop_on_signals(void) {
    struct sigaction action = {.sa_handler = on_hang_up, .sa_flags = SA_RESTART}, old;
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN) // as nohup has it
        sigaction(SIGHUP, &action, NULL);
    action.sa_handler = on_signal;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); // which mpirun passes on to all ranks, and Slurm sends before it ends a job
    return &stop;
}

trireme_status print_bytes(const struct text *text, trireme_error *error) {
    if (text->length && !console_add(CONSOLE_OUTPUT, CONSOLE_RESULT, text->text, text->length))
        FAIL(TRIREME_ERROR_IO, "standard output: cannot write: %s", strerror(errno));
    return TRIREME_OK;
}

trireme_status print_text(const struct text *text, trireme_error *error) {
    struct text shown = {0};
    text_add_shown(&shown, text->text, text->length, true); // names of files may hold any bytes
    trireme_status status = print_bytes(&shown, error);
    text_release(&shown);
    return status;
}

// ---- the live line, on standard error

static const int64_t LIVE_NANOSECONDS = 100000000, // as often as an eye can follow
    LOGGED_NANOSECONDS = 60000000000;              // what takes less says nothing

static bool line_is_up;
static int64_t line_time;

bool progress_is_live(void) {
    return isatty(STDERR_FILENO);
}

void progress_line(const char *format, ...) {
    bool live = progress_is_live(), first = line_time == 0;
    int64_t now = clock_now();
    if (live ? line_is_up && now - line_time < LIVE_NANOSECONDS : !first && now - line_time < LOGGED_NANOSECONDS)
        return;
    line_time = now;
    if (first && !live)
        return;
    struct winsize size;
    int width = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1 : 79;
    va_list args;
    va_start(args, format);
    char *text = mem_vprintf(format, args);
    va_end(args);
    if (live)
        line_is_up |= console_tell(CONSOLE_ERRORS, CONSOLE_FRAME, "\r\033[K%.*s", width, text);
    else
        console_tell(CONSOLE_ERRORS, CONSOLE_LINE, "%s\n", text);
    free(text);
}

void progress_clear(void) {
    if (line_is_up)
        console_tell(CONSOLE_ERRORS, CONSOLE_RESULT, "\r\033[K");
    line_is_up = false;
}
