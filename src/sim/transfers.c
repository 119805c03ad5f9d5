#include "sim/transfers.h"

#include "sim/cost.h"

#include <math.h>

// ---- links

// A link, or one direction of it: between two ranks, or between a rank and a switch.
struct link_name {
    int level;
    axis_set group; // two ranks: of their message
    int class;      // that of one of the two ranks, or of the rank
    int distance;   // of two ranks in the group: at most half of it; 0: to a switch
    int direction;
};

static int link_name_compare(const void *a, const void *b) {
    const struct link_name *x = a, *y = b;
    return COMPARE(x->class, y->class) ?: COMPARE(x->level, y->level) ?: COMPARE(x->group, y->group)
               ?: COMPARE(x->distance, y->distance) ?: COMPARE(x->direction, y->direction);
}

struct links_of_message {
    int count;
    struct link_name name[2];
};

static struct links_of_message switch_links(int level, bool half_duplex, int sender, int receiver) {
    return (struct links_of_message){
        2, {{.level = level, .class = sender}, {.level = level, .class = receiver, .direction = !half_duplex}}};
}

// The two ranks name their link by the one that has the other less than half of the group further on. At exactly half
// both have: then by the first, if there is one link for both directions. Where nothing tells the two apart, each sends
// when the other does, so that the message counts twice.
static struct links_of_message direct_links(const struct topology *p, const struct link_use *use, int level, int sender,
                                            int receiver) {
    const bool half_duplex = p->cluster->level[level].half_duplex;
    const int ranks = mesh_group_size(&p->mesh, use->group), ahead = (use->peer % ranks + ranks) % ranks;
    struct link_name name = {.level = level, .group = use->group, .class = sender, .distance = ahead};
    struct links_of_message links = {.count = 1};
    if (2 * ahead == ranks && half_duplex) {
        links.count = sender == receiver ? 2 : 1;
        name.class = MIN(sender, receiver);
    } else if (2 * ahead > ranks) {
        name.class = receiver;
        name.distance = ranks - ahead;
        name.direction = !half_duplex;
    }
    links.name[0] = links.name[1] = name;
    return links;
}

// What a message of the class goes over, of links that are shared.
static struct links_of_message links_of_message(const struct topology *p, size_t number, int sender) {
    const struct link_use *use = &p->use[number];
    const int rank = topology_rank(p, sender),
              level = use->message ? route_only_level(p->cluster, &p->route[number][rank]) : NONE;
    if (level == NONE || p->cluster->level[level].wiring == WIRING_NONE)
        return (struct links_of_message){0};
    const int receiver = topology_class(p, mesh_peer(&p->mesh, rank, use->group, use->peer));
    return p->cluster->level[level].wiring == WIRING_DIRECT
               ? direct_links(p, use, level, sender, receiver)
               : switch_links(level, p->cluster->level[level].half_duplex, sender, receiver);
}

void transfers_create(struct transfers *out, const struct topology *p) {
    *out = (struct transfers){.classes = p->classes};
    out->link = mem_alloc(p->uses * (size_t)p->classes * sizeof *out->link);
    VEC(struct link_name) names = {0};
    for (size_t u = 0; u < p->uses; u++)
        for (int who = 0; who < p->classes; who++) {
            const struct links_of_message links = links_of_message(p, u, who);
            for (int i = 0; i < links.count; i++)
                VEC_PUSH(&names, links.name[i]);
        }
    VEC_SORT(&names, link_name_compare);
    size_t count = 0;
    for (size_t i = 0; i < names.count; i++)
        if (i == 0 || link_name_compare(&names.item[i], &names.item[count - 1]) != 0)
            names.item[count++] = names.item[i];
    for (size_t u = 0; u < p->uses; u++)
        for (int who = 0; who < p->classes; who++) {
            const struct links_of_message links = links_of_message(p, u, who);
            int *link = out->link[u * (size_t)p->classes + (size_t)who];
            for (int i = 0; i < 2; i++) {
                const struct link_name *found =
                    i < links.count ? bsearch(&links.name[i], names.item, count, sizeof *names.item, link_name_compare)
                                    : NULL;
                link[i] = found ? (int)(found - names.item) : NONE;
            }
        }
    out->load = mem_alloc(MAX(count, 1) * sizeof *out->load);
    VEC_RELEASE(&names);
}

void transfers_release(struct transfers *t) {
    VEC_RELEASE(&t->waiting);
    VEC_RELEASE(&t->under_way);
    free(t->link);
    free(t->load);
}

static const int *transfer_links(const struct transfers *t, int use, int sender) {
    return t->link[use * t->classes + sender];
}

bool transfers_share(const struct transfers *t, int use, int sender) {
    return transfer_links(t, use, sender)[0] != NONE;
}

// ---- time

void transfers_add(struct transfers *t, const struct transfer *transfer) {
    VEC_PUSH(&t->waiting, *transfer);
}

// Adds so many messages to the load of the transfer's links.
static void load_links(struct transfers *t, const struct transfer *transfer, int more) {
    const int *link = transfer_links(t, transfer->use, transfer->sender);
    for (int i = 0; i < 2; i++)
        if (link[i] != NONE)
            t->load[link[i]] += more;
}

// By how much longer than alone the rest of a transfer takes while nothing else begins or ends.
static int slowness(const struct transfers *t, const struct transfer *transfer) {
    const int *link = transfer_links(t, transfer->use, transfer->sender);
    int most = 1;
    for (int i = 0; i < 2; i++)
        if (link[i] != NONE)
            most = MAX(most, t->load[link[i]]);
    return most;
}

static double travels_from(const struct transfer *transfer) {
    return transfer->begin + transfer->latency;
}

static void transfers_advance(struct transfers *t, double to) {
    for (size_t i = 0; i < t->under_way.count; i++) {
        struct transfer *transfer = &t->under_way.item[i];
        transfer->left = fmax(0, transfer->left - (to - t->now) / slowness(t, transfer));
    }
    t->now = to;
}

bool transfers_next(struct transfers *t, struct transfer *out) {
    for (;;) {
        size_t first = 0, last = 0; // of those that wait, the first to travel; of those under way, the first to end
        double begin = INFINITY, end = INFINITY;
        for (size_t i = 0; i < t->waiting.count; i++)
            if (travels_from(&t->waiting.item[i]) < begin)
                begin = travels_from(&t->waiting.item[first = i]);
        for (size_t i = 0; i < t->under_way.count; i++) {
            const struct transfer *transfer = &t->under_way.item[i];
            const double when = t->now + transfer->left * slowness(t, transfer);
            if (when < end) {
                end = when;
                last = i;
            }
        }
        if (!isfinite(begin) && !isfinite(end))
            return false;
        if (end <= begin) {
            transfers_advance(t, end);
            *out = t->under_way.item[last];
            load_links(t, out, -1);
            t->under_way.item[last] = t->under_way.item[--t->under_way.count];
            return true;
        }
        transfers_advance(t, fmax(begin, t->now));
        VEC_PUSH(&t->under_way, t->waiting.item[first]);
        load_links(t, &t->waiting.item[first], 1);
        t->waiting.item[first] = t->waiting.item[--t->waiting.count];
    }
}
