#include "work.h"

#include "command.h"

uint32_t work_of_item(const struct bloom_filter *filter, bool adds)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    if (!bloom_params_is_cuckoo(params))
        return work_of_bloom_item(filter);
    uint32_t looks = bloom_filter_nlayers(filter) + (adds ? params->iterations : 0);
    return 1 + WORK_PAGE * bloom_filter_young_bits(filter) + (bloom_filter_beyond_cache(filter) ? looks : looks / 8);
}

uint64_t work_of_bits(const struct bloom_filter *filter)
{
    return UINT64_C(256) * bloom_filter_nlayers(filter) + bloom_filter_memory(filter) / 2048;
}

uint64_t work_of_words(const struct command *row, const struct resp_command *cmd, size_t npatterns)
{
    struct command_keys keys = command_keys(row, cmd->argc);
    size_t names = (keys.end - keys.first + keys.step - 1) / keys.step;
    bool is_hashed = row->secrets != SECRETS_NONE; /* passwords */
    uint64_t work = cmd->argc + command_bytes(cmd) / (is_hashed ? 32 : 128) + names * (1 + npatterns / 8);
    if (row->flags & CMD_MODULE)
        return work;
    if (row->flags & CMD_FAST)
        return work + (is_hashed ? 16 : 4);
    return names ? work + 32 : work + WORK_SLOW + (row->flags & CMD_LARGE ? 4 : 256) * cmd->argc;
}
