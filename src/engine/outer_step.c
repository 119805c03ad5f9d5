#include "engine/outer_step.h"

trireme_status outer_step_begin(struct engine *e, double weight, trireme_error *error) {
    const struct engine_program *exchange = engine_find(e, PROGRAM_OUTER_EXCHANGE);
    TRY(engine_run(e, engine_find(e, PROGRAM_OUTER_TAKE), NULL, error));
    *(double *)executor_address(exchange->executor, exchange->compiled->weight, 0) = weight;
    return engine_begin(e, PROGRAM_OUTER_EXCHANGE, NULL, error);
}

trireme_status outer_step_wait(struct engine *e, trireme_error *error) {
    return engine_find(e, PROGRAM_OUTER_EXCHANGE)->under_way ? engine_end(e, PROGRAM_OUTER_EXCHANGE, error)
                                                             : TRIREME_OK;
}

trireme_status outer_step_end(struct engine *e, trireme_error *error) {
    TRY(outer_step_wait(e, error));
    return engine_run(e, engine_find(e, PROGRAM_OUTER_SETTLE), NULL, error);
}
