// Which tokens a step trains on: a pure function of (seed, step, row of the global batch), whatever the number of ranks
// and the size of the microbatches. Nothing is stored, so starting and resuming take no time at any step.
//
// The set is cut into two ranges of tokens, training first, validation last. The cut moves up to the beginning of the
// next document if that is within a tenth of the validation range and within 2^20 tokens; otherwise it falls inside a
// document.
//
// Training. With T = seq_len, a range of L tokens has N = max(1, floor((L - T) / T)) windows of T + 1 tokens, the last
// of which is a target only; windows lie side by side, sharing one token with each neighbour. Sample k = step x global
// batch + row belongs to epoch e = floor(k / N) and takes window rng_permute(key(e), N, k mod N) of it: each window
// once an epoch. All windows of an epoch are shifted by phase(e) < T, so that documents are cut elsewhere in every
// epoch. Key and phase are Philox numbers of (seed, e).
//
// With an origin (step s, sample k0), step t >= s begins with sample k0 + (t - s) x global batch: so a run goes on
// whose batch has changed (the windows of an epoch are still each taken once), or whose tokens or seq_len have, with
// the first window of an epoch that it has not begun before.
//
// Several sources (data.mixture). Each is cut into its own two ranges, and has windows, epochs, keys and phases of its
// own. The samples of a step are divided among sources by mixture_sample: of all samples so far each source has its
// share, rounded; which row gets which of the step's samples is a permutation of the step's, so that no rank meets one
// source alone. Validation goes through the sources one after the other.
//
// Whole documents. Windows are then rows of whole documents, as many of the next ones as have at most T + 1 tokens
// together; one that is longer is cut into windows as above. Which they are is found once, when the sampler is made,
// and kept: 8 bytes for each. There is one phase.
//
// Validation. Windows come in their order: row r of batch b takes window b x batch + r. A source has ceil((L - 1) / T)
// windows, the last one filled up with masked targets: every token but the first is a target exactly once. Rows beyond
// the last window are all masked. A row, and even a batch, may have no target at all (documents of one token): the
// caller must deal with a mean over none.
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include "data/mixture.h"
#include "data/token_set.h"
#include "program/places.h"
#include "tokenizer/tokenizer.h"

enum sampler_split { SAMPLER_TRAIN, SAMPLER_VALIDATION };

// Where the order of samples begins: `sample` is the first one of `step`. Zero: at the start.
struct sampler_origin {
    int64_t step, sample;
};

struct sampler_options {
    uint64_t seed;
    int64_t seq_len;            // T, 1 or more
    int64_t global_batch_size;  // rows of a step, 1 or more
    int32_t vocab_size;         // of the model; a token beyond it, or beyond the tokenizer's, is refused when it is met
    double validation_fraction; // of the tokens, in [0, 1]; 1: there is no training range
    bool whole;                 // documents that fit into a window are not cut
    bool evaluate_only;         // nothing is trained on: the training range may have no window
    const struct tokenizer *tokenizer; // to count bytes of text; NULL where the token files name none
    struct sampler_origin origin;      // of training; no step before its own may be asked for
    const double *weight; // of each source of the set, until sampler_init returns; NULL: as many as they have tokens
};

struct sampler_source {
    struct sampler_range {
        int64_t begin, end; // tokens
        int64_t windows;
    } range[2];      // by enum sampler_split; an empty one has no windows
    int64_t *row[2]; // where each window begins, if documents are whole; NULL: windows lie side by side
    int64_t phases;  // how many shifts of the training windows there are: phase(e) lies below it
};

// Read-only once made: any number of threads may fill batches from one. The set and the tokenizer must outlive it.
struct sampler {
    const struct token_set *set;
    struct sampler_options options;
    uint64_t stream; // of random numbers (base/rng.h)
    struct mixture_shares shares;
    struct sampler_source source[MIXTURE_SOURCES];
    int64_t cut_documents; // of those that are kept whole, so many are longer than a window
};

// Windows of a training range of so many tokens: an epoch's samples. 0: it is too short.
int64_t sampler_windows(int64_t tokens, int64_t seq_len);
// USAGE when a range is too short: training needs seq_len + 1 tokens unless the fraction is 1 or nothing is trained on,
// validation needs 2 tokens unless the fraction is 0.
trireme_status sampler_init(struct sampler *s, const struct token_set *set, const struct sampler_options *options,
                            trireme_error *error);
// Of a sampler, and at once of all copies of it.
void sampler_release(struct sampler *s);

// What one part has of the tokens of rows of a batch, one row after another: B rows of T = places.rows. Places from
// seq_len on are padding: token 0, without a target, alone in its document. Caller owns the arrays.
struct sampler_batch {
    struct places places;
    int64_t part;
    int32_t *tokens;    // (B, T)
    int32_t *targets;   // (B, T) the next token; -1 where there is none, where it begins another document (except
                        //        llm.c's end-of-text, which begins a document and is a target of the one before), or
                        //        where it is only read (token_set_masked)
    int32_t *starts;    // (B, T) place in the row at which this token's document begins, 0 if before the row:
                        //        the row's token at place i may attend to [its start, i]
    int32_t *positions; // (B, T) of the row's token at place i: i - its start
};

struct sampler_counts {
    int64_t targets;    // targets that are not masked
    int64_t text_bytes; // bytes of text that these targets stand for; 0 without a tokenizer
};

// Fills `rows` rows of a step, from row `first` of its global batch. (Microbatch i of size m begins at first = i x m,
// after the rows of the data-parallel ranks before this one.) Steps count from 0; for validation `step` counts batches.
// 0 <= first, first + rows <= global_batch_size; the split has windows. Allocates nothing. counts may be NULL.
trireme_status sampler_fill(const struct sampler *s, enum sampler_split split, int64_t step, int64_t first,
                            int64_t rows, const struct sampler_batch *batch, struct sampler_counts *counts,
                            trireme_error *error);

// Sets *out to whether any token of the split is a target: none is where all documents are of one token, or nothing is
// to be predicted. Reads up to the first target.
trireme_status sampler_has_targets(const struct sampler *s, enum sampler_split split, bool *out, trireme_error *error);

// Tokens that are trained on, of all sources; where documents are whole, with what rows are filled up with.
int64_t sampler_train_tokens(const struct sampler *s);
// Batches of global_batch_size rows that cover the validation ranges once.
int64_t sampler_validation_batches(const struct sampler *s);

#endif
