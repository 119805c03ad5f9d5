// Pipeline schedules from hostile text. What is accepted must print to a text that reads back as the same schedule,
// have a slot for every pass, and cost no less than its work.
#include "base/utf8.h"
#include "pipeline/schedule.h"

static void check_rank(const struct schedule *s, int rank) {
    int *of_chunk = mem_alloc((size_t)s->chunks * sizeof *of_chunk),
        *slot = mem_alloc((size_t)s->microbatches * sizeof *slot), most = schedule_in_flight(s, rank, of_chunk);
    for (int c = 0; c < s->chunks; c++) {
        CHECK(of_chunk[c] >= 1 && of_chunk[c] <= s->microbatches && of_chunk[c] <= most);
        CHECK(schedule_slots(s, rank, c, SLOTS_FOR_ACTIVATIONS, false, slot) == of_chunk[c]);
        int slots = schedule_slots(s, rank, c, SLOTS_FOR_INPUTS, false, slot);
        for (int m = 0; m < s->microbatches; m++)
            CHECK(slot[m] >= 0 && slot[m] < slots);
    }
    free(of_chunk);
    free(slot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct schedule schedule, again;
    trireme_error error = {.status = TRIREME_OK};
    trireme_status status = schedule_parse(&schedule, (const char *)data, size, &error);
    if (status != TRIREME_OK) {
        CHECK(error.status == status && error.message[0]);
        for (const char *s = error.message; *s; s++)
            CHECK((unsigned char)*s >= 0x20 && *s != 0x7F);
        CHECK(utf8_is_valid(error.message));
        return 0;
    }
    struct text first = {0}, second = {0};
    schedule_print(&schedule, &first);
    CHECK(schedule_parse(&again, first.text, first.length, &error) == TRIREME_OK);
    schedule_print(&again, &second);
    CHECK(first.length == second.length && memcmp(first.text, second.text, first.length) == 0);
    CHECK(again.stages == schedule.stages && again.chunks == schedule.chunks);
    CHECK(again.microbatches == schedule.microbatches);
    for (int r = 0; r < schedule.stages; r++)
        check_rank(&schedule, r);
    // Small whole numbers: sums of them are exact.
    struct schedule_times times = {.forward = 4, .backward_input = 3, .backward_weight = 2, .latency = 1};
    struct schedule_cost cost;
    schedule_cost(&schedule, &times, &cost);
    CHECK(cost.cost >= 9. * schedule.microbatches * schedule.chunks && cost.bubble >= 0 && cost.bubble < 1);
    schedule_cost_release(&cost);
    text_release(&first);
    text_release(&second);
    schedule_release(&schedule);
    schedule_release(&again);
    return 0;
}
