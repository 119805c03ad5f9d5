// trireme checkpoint list DIR: what checkpoints there are, and why they are kept.
#include "base/json.h"
#include "cli/command_checkpoint.h"
#include "run/checkpoint_facts.h"

#include <math.h>
#include <time.h>

struct listed {
    const struct directory_numbered *checkpoint;
    struct checkpoint_facts facts;
    bool ruled; // it is known why it is kept
    unsigned kept;
};

struct listing {
    struct checkpoint_place place;
    bool has_rules;
    int64_t every;
    VEC(struct listed); // oldest first
    struct directory_list unfinished;
};

static double list_loss(void *user, const struct directory_numbered *checkpoint) {
    return checkpoint_loss(user, checkpoint);
}

// Says of each why it is kept, as the run's configuration has it.
static trireme_status listing_judge(struct listing *l, struct checkpoint_losses *losses, trireme_error *error) {
    struct config config;
    struct retention_list list;
    trireme_error ignored;
    char *yaml = mem_printf("%s/config.yaml", l->place.run ? l->place.run : "");
    l->has_rules = l->place.run && l->place.parent && config_load(&config, yaml, NULL, 0, &ignored) == TRIREME_OK;
    free(yaml);
    if (!l->has_rules)
        return TRIREME_OK;
    l->every = config.checkpoint.keep_every;
    struct retention retention = {
        .parent = l->place.parent, .rules = checkpoint_rules(&config), .loss = list_loss, .user = losses};
    config_release(&config);
    trireme_status status = retention_guess(&retention, checkpoint_last_counted(l->place.parent), &list, error);
    for (size_t i = 0; i < l->count && status == TRIREME_OK; i++)
        for (size_t k = 0; k < list.count; k++)
            if (strcmp(l->item[i].checkpoint->path, list.item[k].path) == 0) {
                l->item[i].ruled = true;
                l->item[i].kept = list.item[k].kept;
            }
    retention_list_release(&list);
    retention_release(&retention);
    return status;
}

static trireme_status listing_create(struct listing *l, const char *path, trireme_error *error) {
    *l = (struct listing){0};
    TRY(checkpoint_place_find(path, &l->place, error));
    struct checkpoint_losses losses = {.run_directory = l->place.run};
    for (size_t i = l->place.list.count; i-- > 0;) {
        struct listed one = {.checkpoint = &l->place.list.item[i]};
        checkpoint_facts_read(one.checkpoint, &losses, &one.facts);
        VEC_PUSH(l, one);
    }
    if (l->place.parent)
        directory_list_unfinished(l->place.parent, &l->unfinished);
    const trireme_status status = listing_judge(l, &losses, error);
    checkpoint_losses_release(&losses);
    return status;
}

static void listing_release(struct listing *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->item[i].facts.damage);
    VEC_RELEASE(l);
    directory_list_release(&l->unfinished);
    checkpoint_place_release(&l->place);
}

// ---- for programs

static void list_add_known(struct text *out, const char *key, int64_t value) {
    if (value >= 0)
        json_add_integer(out, key, value);
    else
        json_add_number(out, key, NAN);
}

static void list_print_json(const struct listing *l, struct text *out) {
    json_begin_object(out, NULL);
    json_begin_array(out, "checkpoints");
    for (size_t i = 0; i < l->count; i++) {
        const struct checkpoint_facts *f = &l->item[i].facts;
        json_begin_object(out, NULL);
        json_add_string(out, "path", l->item[i].checkpoint->path);
        list_add_known(out, "step", f->step);
        json_add_number(out, "time", f->time);
        list_add_known(out, "parameters", f->parameters);
        if (f->dtype)
            json_add_string(out, "dtype", f->dtype);
        json_add_integer(out, "model_bytes", f->model_bytes);
        json_add_integer(out, "state_bytes", f->state_bytes);
        json_add_number(out, "val_loss", f->val_loss);
        json_add_boolean(out, "complete", !f->damage);
        if (f->damage)
            json_add_string(out, "damage", f->damage);
        if (l->item[i].ruled)
            checkpoint_kept_json(l->item[i].kept, out);
        json_end_object(out);
    }
    json_end_array(out);
    json_begin_array(out, "being_saved");
    for (size_t i = 0; i < l->unfinished.count; i++)
        json_add_integer(out, NULL, l->unfinished.item[i].number);
    json_end_array(out);
    json_end_object(out);
    text_add(out, "\n");
}

// ---- for people

static void list_add_count(struct text *out, int64_t count) {
    static const char UNITS[] = " kMBT";
    double value = (double)count;
    int unit = 0;
    for (; value >= 999.5 && UNITS[unit + 1]; unit++)
        value /= 1000;
    if (count < 0)
        text_add(out, "  %10s", "-");
    else if (unit)
        text_add(out, "  %8.*f %c", value < 99.95, value, UNITS[unit]);
    else
        text_add(out, "  %10lld", (long long)count);
}

static void list_add_time(struct text *out, double seconds) {
    const time_t when = isnan(seconds) ? 0 : (time_t)seconds;
    struct tm parts;
    char text[32] = "-";
    if (!isnan(seconds) && localtime_r(&when, &parts))
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
    text_add(out, "  %-19s", text);
}

static void list_add_row(const struct listing *l, const struct listed *one, struct text *out) {
    const struct checkpoint_facts *f = &one->facts;
    if (f->step >= 0)
        text_add(out, "%8lld", (long long)f->step);
    else
        text_add(out, "%8s", "-");
    list_add_time(out, f->time);
    list_add_count(out, f->parameters);
    text_add(out, "  %-5s  %8s  %8s", f->dtype ? f->dtype : "-", amount(f->model_bytes).text,
             amount(f->state_bytes).text);
    if (isnan(f->val_loss))
        text_add(out, "  %8s", "-");
    else
        text_add(out, "  %8.4f", f->val_loss);
    if (f->damage)
        text_add(out, "  damaged: %s", f->damage);
    if (one->ruled && (one->kept || !f->damage)) {
        text_add(out, "%s", f->damage ? "; kept: " : "  ");
        checkpoint_kept_text(one->kept, l->every, out);
        text_add(out, "%s", one->kept ? "" : "goes with the next save");
    }
    text_add(out, "\n");
}

static void list_print(const struct listing *l, struct text *out) {
    if (!l->count && !l->unfinished.count) {
        text_add(out, "no checkpoints\n");
        return;
    }
    text_add(out, "%8s  %-19s  %10s  %-5s  %8s  %8s  %8s%s\n", "step", "saved", "parameters", "dtype", "model", "state",
             "val_loss", l->has_rules ? "  kept" : "");
    for (size_t i = 0; i < l->count; i++)
        list_add_row(l, &l->item[i], out);
    for (size_t i = 0; i < l->unfinished.count; i++)
        text_add(out, "%8lld  is being saved\n", (long long)l->unfinished.item[i].number);
}

trireme_status command_checkpoint_list(const struct arguments *a, trireme_error *error) {
    struct listing listing;
    struct text out = {0};
    TRY(arguments_expect(a, 2, 2, error));
    trireme_status status = listing_create(&listing, a->operands.item[1], error);
    if (status == TRIREME_OK) {
        if (a->json)
            list_print_json(&listing, &out);
        else
            list_print(&listing, &out);
        status = print_text(&out, error);
    }
    text_release(&out);
    listing_release(&listing);
    return status;
}
