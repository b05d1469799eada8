/* The search for frames after a damaged place tries every byte offset. Random bytes would make it checksum up to a
 * gigabyte at each offset. So the length of a long frame has its own checksum: at a wrong offset either the length is
 * small or this check fails. */
#include "log_frame.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bytes.h"
#include "check.h"
#include "log_payload_internal.h"
#include "manifest.h"

#define SUMMED     80  /* bytes of the header under its checksum, which follows them */
#define FLAG_ENDS  1   /* of the header: ends_process */
#define LONG_FRAME 128 /* payloads from this length on have the check of the length */
#define HEAD_FIXED 6   /* checksum and the low half of the sequence number */

static const char magic[8] = {'B', 'L', 'O', 'O', 'M', 'L', 'O', 'G'};

/* ---- segments ---- */

void log_header_encode(const struct log_header *header, unsigned char bytes_out[LOG_HEADER_BYTES])
{
    memset(bytes_out, 0, LOG_HEADER_BYTES);
    memcpy(bytes_out, magic, 8);
    le32_put(bytes_out + 8, LOG_VERSION);
    le64_put(bytes_out + 16, header->number);
    le64_put(bytes_out + 24, header->first);
    le64_put(bytes_out + 32, header->salt);
    le64_put(bytes_out + 40, header->process);
    le64_put(bytes_out + 48, header->generation);
    le64_put(bytes_out + 56, header->sealed);
    le64_put(bytes_out + 64, header->previous);
    le64_put(bytes_out + 72, header->ends_process ? FLAG_ENDS : 0u);
    le64_put(bytes_out + SUMMED, XXH3_64bits(bytes_out, SUMMED));
}

static int check_numbers(const struct log_header *header, struct errbuf *err)
{
    if (header->number == 0 || header->first == 0)
        return errbuf_fail(err, LOG_DAMAGED, "its header has a number of 0");
    if (header->first >= LOG_NUMBER_END || header->sealed >= LOG_NUMBER_END)
        return errbuf_fail(err, LOG_DAMAGED, "its header has a number that is out of range");
    if (header->process == 0 || header->process > header->number)
        return errbuf_fail(err, LOG_DAMAGED, "its header has a process number that is out of range: %" PRIu64,
                           header->process);
    if (header->previous >= header->number)
        return errbuf_fail(err, LOG_DAMAGED, "its header names a later segment as its previous one: %" PRIu64,
                           header->previous);
    return LOG_OK;
}

int log_header_decode(const unsigned char bytes[LOG_HEADER_BYTES], struct log_header *header_out, struct errbuf *err)
{
    uint32_t version = le32_get(bytes + 8);

    if (memcmp(bytes, magic, 8) != 0)
        return errbuf_fail(err, LOG_DAMAGED, "it is not a segment of the log");
    if (le64_get(bytes + SUMMED) != XXH3_64bits(bytes, SUMMED))
        return errbuf_fail(err, LOG_DAMAGED, "the checksum of its header is wrong");
    if (version != LOG_VERSION && version != LOG_VERSION_OLD)
        return errbuf_fail(err, LOG_NEWER,
                           WRITTEN_BY_NEWER ": its format has version %" PRIu32 ", and this program knows version %d",
                           version, LOG_VERSION);
    const struct log_header header = {
        .number = le64_get(bytes + 16),
        .first = le64_get(bytes + 24),
        .salt = le64_get(bytes + 32),
        .process = le64_get(bytes + 40),
        .generation = le64_get(bytes + 48),
        .sealed = le64_get(bytes + 56),
        .previous = le64_get(bytes + 64),
        .ends_process = le64_get(bytes + 72) & FLAG_ENDS,
        .old = version == LOG_VERSION_OLD,
    };
    int status = check_numbers(&header, err);
    if (status == LOG_OK)
        *header_out = header;
    return status;
}

void log_file_name(uint64_t number, const char *kind, char name_out[LOG_FILE_NAME])
{
    snprintf(name_out, LOG_FILE_NAME, "%08" PRIu64 "%s", number, kind);
}

uint64_t log_file_number(const char *name, const char *kind)
{
    char again[LOG_FILE_NAME];
    uint64_t number;

    if (name[0] < '0' || name[0] > '9' || strlen(name) >= LOG_FILE_NAME)
        return 0;
    number = strtoull(name, NULL, 10);
    log_file_name(number, kind, again);
    return strcmp(name, again) == 0 && number < LOG_NUMBER_END ? number : 0;
}

/* ---- frames ---- */

static uint64_t seed_of(uint64_t salt, uint64_t sequence)
{
    return salt + sequence * UINT64_C(0x9e3779b97f4a7c15);
}

/* Of the payload, with which the rest after the checksum is summed up. */
static uint64_t payload_seed(uint64_t seed, const unsigned char *head, size_t head_len)
{
    return XXH3_64bits_withSeed(head + 4, head_len - 4, seed);
}

size_t log_frame_open(const struct log_frame *frame, uint64_t salt, unsigned char head_out[LOG_FRAME_HEAD_MAX],
                      uint64_t *seed_out)
{
    uint64_t seed = seed_of(salt, frame->sequence);
    unsigned char *at = head_out + 4;

    CHECK(frame->synced < frame->sequence && frame->payload_len <= LOG_PAYLOAD_MAX); /* or no start takes it */
    at = le16_put(at, (uint16_t)frame->sequence);
    at = varint_put(at, frame->sequence - frame->synced);
    at = varint_put(at, (uint64_t)frame->payload_len << 1 | frame->has_controls);
    if (frame->payload_len >= LONG_FRAME)
        at = le32_put(at, (uint32_t)XXH3_64bits_withSeed(head_out + 4, (size_t)(at - head_out) - 4, seed));
    *seed_out = payload_seed(seed, head_out, (size_t)(at - head_out));
    return (size_t)(at - head_out);
}

size_t log_frame_head(const struct log_frame *frame, uint64_t salt, unsigned char head_out[LOG_FRAME_HEAD_MAX])
{
    uint64_t seed;
    size_t len = log_frame_open(frame, salt, head_out, &seed);

    le32_put(head_out, (uint32_t)XXH3_64bits_withSeed(frame->payload, frame->payload_len, seed));
    return len;
}

/* The bytes before the payload; their length, or 0 if they cannot belong to this frame. */
static size_t parse_head(const unsigned char *bytes, size_t len, uint64_t seed, uint64_t sequence,
                         struct log_frame *frame_out)
{
    uint64_t distance, size;

    if (len < HEAD_FIXED)
        return 0;
    const unsigned char *at = bytes + HEAD_FIXED, *end = bytes + len;
    if (le16_get(bytes + 4) != (uint16_t)sequence)
        return 0;
    if (!varint_get(&at, end, &distance) || distance == 0 || distance > sequence || !varint_get(&at, end, &size))
        return 0;
    if (size >> 1 > LOG_PAYLOAD_MAX)
        return 0;
    if (size >> 1 >= LONG_FRAME) {
        if (end - at < 4 || le32_get(at) != (uint32_t)XXH3_64bits_withSeed(bytes + 4, (size_t)(at - bytes) - 4, seed))
            return 0;
        at += 4;
    }
    *frame_out = (struct log_frame){
        .sequence = sequence,
        .synced = sequence - distance,
        .has_controls = size & 1,
        .payload = at,
        .payload_len = (size_t)(size >> 1),
    };
    return (size_t)(at - bytes);
}

size_t log_frame_parse(const unsigned char *bytes, size_t len, uint64_t salt, uint64_t sequence,
                       struct log_frame *frame_out)
{
    uint64_t seed = seed_of(salt, sequence);
    size_t head = parse_head(bytes, len, seed, sequence, frame_out);

    if (head == 0 || len - head < frame_out->payload_len)
        return 0;
    uint64_t sum = XXH3_64bits_withSeed(frame_out->payload, frame_out->payload_len, payload_seed(seed, bytes, head));
    if (le32_get(bytes) != (uint32_t)sum)
        return 0;
    return head + frame_out->payload_len;
}

size_t log_frame_skip(const unsigned char *bytes, size_t len, uint64_t salt, uint64_t sequence)
{
    struct log_frame frame;
    size_t head = parse_head(bytes, len, seed_of(salt, sequence), sequence, &frame);

    if (head == 0 || frame.payload_len < LONG_FRAME)
        return 1;
    return len - head < frame.payload_len ? len : head + frame.payload_len;
}

size_t log_frame_find(const unsigned char *bytes, size_t len, size_t from, uint64_t salt, uint64_t after,
                      struct log_frame *frame_out, size_t *len_out)
{
    for (size_t at = from; at + HEAD_FIXED < len; at++) {
        /* A frame states how far it is ahead of a synced one; this distance is not 0. */
        while (at + HEAD_FIXED < len && bytes[at + HEAD_FIXED] == 0)
            at++;
        if (at + HEAD_FIXED >= len)
            break;
        uint16_t low = le16_get(bytes + at + 4);
        uint64_t sequence = after + 1 + (uint16_t)(low - (uint16_t)(after + 1));
        size_t n = log_frame_parse(bytes + at, len - at, salt, sequence, frame_out);
        if (n) {
            *len_out = n;
            return at;
        }
    }
    return len;
}
