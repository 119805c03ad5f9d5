#include "chat/chat_families.h"

// Messages of other roles than these three, which these formats have no words for.
#define REFUSE_OTHERS \
    "{%- else %}{{ raise_exception('the role ' ~ m.role ~ ' is not part of this format') }}{%- endif %}"
// A system message that comes first is put before the first message of the user, as `system_of` writes it.
#define SYSTEM_FIRST(system_of)                                                       \
    "{%- set ns = namespace(system='') %}"                                            \
    "{%- for m in messages %}"                                                        \
    "{%- if m.role == 'system' and loop.first %}{%- set ns.system = " system_of " %}" \
    "{%- elif m.role == 'user' %}"

#define CHATML_MESSAGES                                                      \
    "{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"        \
    "{%- generation %}{{ m.content + '<|im_end|>\\n' }}{%- endgeneration %}" \
    "{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}"
#define CHATML_PROMPT "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"

static const struct chat_family {
    const char *name, *template;
} FAMILIES[] = {
    {"chatml", "{%- for m in messages %}" CHATML_MESSAGES "{%- endfor %}" CHATML_PROMPT},
    // As Gemma 3: the system message becomes the beginning of the user's.
    {"gemma", "{{ bos_token }}" SYSTEM_FIRST("m.content + '\\n\\n'") //
     "{{ '<start_of_turn>user\\n' + ns.system + m.content | trim + '<end_of_turn>\\n' }}{%- set ns.system = '' %}"
     "{%- elif m.role == 'assistant' %}{{ '<start_of_turn>model\\n' }}"
     "{%- generation %}{{ m.content | trim + '<end_of_turn>\\n' }}{%- endgeneration %}" REFUSE_OTHERS
     "{%- endfor %}{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{%- endif %}"},
    {"llama2", SYSTEM_FIRST("'<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n'") //
     "{{ bos_token + '[INST] ' + (ns.system + m.content) | trim + ' [/INST]' }}{%- set ns.system = '' %}"
     "{%- elif m.role == 'assistant' %}"
     "{%- generation %}{{ ' ' + m.content | trim + ' ' + eos_token }}{%- endgeneration %}" REFUSE_OTHERS
     "{%- endfor %}"},
    {"llama3",
     "{{ bos_token }}{%- for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' }}"
     "{%- if m.role == 'assistant' %}"
     "{%- generation %}{{ m.content | trim + '<|eot_id|>' }}{%- endgeneration %}"
     "{%- else %}{{ m.content | trim + '<|eot_id|>' }}{%- endif %}{%- endfor %}"
     "{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"},
    {"mistral", "{{ bos_token }}" SYSTEM_FIRST("m.content + '\\n\\n'") //
     "{{ '[INST] ' + ns.system + m.content + ' [/INST]' }}{%- set ns.system = '' %}"
     "{%- elif m.role == 'assistant' %}"
     "{%- generation %}{{ ' ' + m.content | trim + eos_token }}{%- endgeneration %}" REFUSE_OTHERS "{%- endfor %}"},
    // Also Tulu 3.
    {"olmo2", "{{ bos_token }}{%- for m in messages %}{{ '<|' + m.role + '|>\\n' }}"
              "{%- if m.role == 'assistant' %}"
              "{%- generation %}{{ m.content + eos_token }}{%- endgeneration %}{{ '' if loop.last else '\\n' }}"
              "{%- else %}{{ m.content + '\\n' }}{%- endif %}{%- endfor %}"
              "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{%- endif %}"},
    {"phi3", "{%- for m in messages %}{{ '<|' + m.role + '|>\\n' }}"
             "{%- if m.role == 'assistant' %}{%- generation %}{{ m.content + '<|end|>\\n' }}{%- endgeneration %}"
             "{%- else %}{{ m.content + '<|end|>\\n' }}{%- endif %}{%- endfor %}"
             "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}"
             "{%- else %}{%- generation %}{{ eos_token }}{%- endgeneration %}{%- endif %}"},
    {"phi4", "{%- for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' }}"
             "{%- if m.role == 'assistant' %}{%- generation %}{{ m.content + '<|im_end|>' }}{%- endgeneration %}"
             "{%- else %}{{ m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}"
             "{%- if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif %}"},
    {"qwen2.5",
     "{%- if messages[0].role != 'system' %}"
     "{{ '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\\n' }}"
     "{%- endif %}{%- for m in messages %}" CHATML_MESSAGES "{%- endfor %}" CHATML_PROMPT},
    // Thoughts are kept of answers that follow the last message of the user.
    {"qwen3",
     "{%- set ns = namespace(last=messages | length - 1) %}"
     "{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
     "{%- for m in messages %}"
     "{%- if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n' }}"
     "{%- set thoughts = m.reasoning_content | default('') %}{%- set content = m.content %}"
     "{%- if not thoughts and '</think>' in content %}"
     "{%- set thoughts = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
     "{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}"
     "{%- generation %}"
     "{%- if loop.index0 > ns.last and (loop.last or thoughts) %}"
     "{{ '<think>\\n' + thoughts.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}"
     "{%- else %}{{ content }}{%- endif %}{{ '<|im_end|>\\n' }}{%- endgeneration %}"
     "{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}"
     "{%- endfor %}" CHATML_PROMPT
     "{%- if add_generation_prompt and enable_thinking is defined and not enable_thinking %}"
     "{{ '<think>\\n\\n</think>\\n\\n' }}{%- endif %}"},
    {"zephyr", "{%- for m in messages %}{{ '<|' + m.role + '|>\\n' }}"
               "{%- if m.role == 'assistant' %}{%- generation %}{{ m.content + eos_token + '\\n' }}{%- endgeneration %}"
               "{%- else %}{{ m.content + eos_token + '\\n' }}{%- endif %}{%- endfor %}"
               "{%- if add_generation_prompt %}{{ '<|assistant|>\\n' }}{%- endif %}"},
};

const char *chat_family(const char *name) {
    for (size_t i = 0; i < ARRAY_LENGTH(FAMILIES); i++)
        if (strcmp(FAMILIES[i].name, name) == 0)
            return FAMILIES[i].template;
    return NULL;
}

void chat_families_list(struct text *out) {
    for (size_t i = 0; i < ARRAY_LENGTH(FAMILIES); i++)
        text_add(out, "%s%s", i ? ", " : "", FAMILIES[i].name);
}

const char *chat_family_nearest(const char *name) {
    return text_nearest(name, &FAMILIES[0].name, ARRAY_LENGTH(FAMILIES), sizeof *FAMILIES);
}
