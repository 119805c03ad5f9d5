#include "tokenizer/description.h"

json_t *description_json(json_t *added_tokens, json_t *normalizer, json_t *pre_tokenizer, json_t *decoder,
                         json_t *model) {
    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                     "added_tokens", added_tokens, "normalizer", normalizer, "pre_tokenizer", pre_tokenizer,
                     "post_processor", "decoder", decoder, "model", model);
}

json_t *description_special(int32_t id, const char *content, size_t length) {
    return json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", id, "content", content, length, "single_word", 0,
                     "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

json_t *description_sequence(const char *members, json_t *steps) {
    if (json_array_size(steps))
        return json_pack("{s:s, s:o}", "type", "Sequence", members, steps);
    json_decref(steps);
    return json_null();
}

json_t *description_byte_level(bool splits) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     splits);
}

json_t *description_split(const char *pattern) {
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex", pattern, "behavior", "Isolated",
                     "invert", 0);
}

json_t *description_bpe(json_t *unknown, bool byte_fallback, bool ignores_merges) {
    return json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b}", "type", "BPE", "dropout", "unk_token", unknown,
                     "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", !json_is_null(unknown),
                     "byte_fallback", byte_fallback, "ignore_merges", ignores_merges);
}
