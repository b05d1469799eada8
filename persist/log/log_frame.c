/* The search for frames behind a damaged place tries every byte offset. Random bytes would make it checksum up to a
 * gigabyte at each of them, so a frame that is long says so under a checksum of its own: at a wrong offset either the
 * length is small or this check fails. */
#include "log_frame.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "log_varint.h"

/* Earlier ones, whose headers end before `start` (1), `sealed` (2) and `previous` (3), and which have no control records with
 * contents in them (4), are read. */
#define LOG_VERSION 5
#define LONG_FRAME  128 /* payloads from this length on have the check of the length */
#define HEAD_FIXED  6   /* checksum and the low half of the sequence number */

static const char magic[8] = {'B', 'L', 'O', 'O', 'M', 'L', 'O', 'G'};

static unsigned char *put32(unsigned char *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, 4);
    return at + 4;
}

static unsigned char *put64(unsigned char *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, 8);
    return at + 8;
}

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, 4);
    return le32toh(value);
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, 8);
    return le64toh(value);
}

/* ---- segments ------------------------------------------------------------------------------------------------------- */

void log_header_encode(const struct log_header *header, unsigned char bytes_out[LOG_HEADER_BYTES])
{
    memset(bytes_out, 0, LOG_HEADER_BYTES);
    memcpy(bytes_out, magic, 8);
    put32(bytes_out + 8, LOG_VERSION);
    put64(bytes_out + 16, header->number);
    put64(bytes_out + 24, header->first);
    put64(bytes_out + 32, header->salt);
    put64(bytes_out + 40, header->start);
    put64(bytes_out + 48, header->generation);
    put64(bytes_out + 56, header->sealed);
    put64(bytes_out + 64, header->previous);
    put64(bytes_out + 72, XXH3_64bits(bytes_out, 72));
}

/* Bytes under the checksum, which follows them; 0: a version that is not known here. */
static size_t summed_bytes(uint32_t version)
{
    static const size_t summed[] = {0, 40, 56, 64, 72, 72};

    return version <= LOG_VERSION ? summed[version] : 0;
}

int log_header_decode(const unsigned char bytes[LOG_HEADER_BYTES], struct log_header *header_out, struct errbuf *err)
{
    if (memcmp(bytes, magic, 8) != 0) {
        errbuf_set(err, "it does not begin as a log does");
        return LOG_DAMAGED;
    }
    uint32_t version = get32(bytes + 8);
    size_t summed = summed_bytes(version);
    if (summed == 0) {
        errbuf_set(err, "version %" PRIu32 " of the format is not known here", version);
        return LOG_DAMAGED;
    }
    bool has_start = version >= 2;
    if (get64(bytes + summed) != XXH3_64bits(bytes, summed)) {
        errbuf_set(err, "the checksum of its header is wrong");
        return LOG_DAMAGED;
    }
    if (get64(bytes + 16) == 0 || get64(bytes + 24) == 0) {
        errbuf_set(err, "its header has a number of 0");
        return LOG_DAMAGED;
    }
    if (get64(bytes + 24) >= LOG_NUMBER_END || (version >= 3 && get64(bytes + 56) >= LOG_NUMBER_END)) {
        errbuf_set(err, "its header has a number that nobody has counted up to");
        return LOG_DAMAGED;
    }
    if (has_start && (get64(bytes + 40) == 0 || get64(bytes + 40) > get64(bytes + 16))) {
        errbuf_set(err, "its header says that its process began with segment %" PRIu64, get64(bytes + 40));
        return LOG_DAMAGED;
    }
    uint64_t previous = version >= 4 ? get64(bytes + 64) : 0;
    if (previous >= get64(bytes + 16)) {
        errbuf_set(err, "its header says that it follows segment %" PRIu64, previous);
        return LOG_DAMAGED;
    }
    *header_out = (struct log_header){
        .number = get64(bytes + 16),
        .first = get64(bytes + 24),
        .salt = get64(bytes + 32),
        .start = has_start ? get64(bytes + 40) : 0,
        .generation = has_start ? get64(bytes + 48) : 0,
        .sealed = version >= 3 ? get64(bytes + 56) : 0,
        .previous = previous,
    };
    return LOG_OK;
}

#define SEGMENT_SUFFIX ".log"
#define DRAFT_SUFFIX   ".log.new"

static void write_name(uint64_t number, const char *suffix, char name_out[LOG_SEGMENT_NAME])
{
    snprintf(name_out, LOG_SEGMENT_NAME, "%08" PRIu64 "%s", number, suffix);
}

/* 0: not the name that write_name() gives to any number. */
static uint64_t read_name(const char *name, const char *suffix)
{
    char again[LOG_SEGMENT_NAME];
    uint64_t number;

    if (name[0] < '0' || name[0] > '9' || strlen(name) >= LOG_SEGMENT_NAME)
        return 0;
    number = strtoull(name, NULL, 10);
    write_name(number, suffix, again);
    return strcmp(name, again) == 0 && number < LOG_NUMBER_END ? number : 0;
}

void log_segment_name(uint64_t number, char name_out[LOG_SEGMENT_NAME])
{
    write_name(number, SEGMENT_SUFFIX, name_out);
}

uint64_t log_segment_number(const char *name)
{
    return read_name(name, SEGMENT_SUFFIX);
}

void log_draft_name(uint64_t number, char name_out[LOG_SEGMENT_NAME])
{
    write_name(number, DRAFT_SUFFIX, name_out);
}

uint64_t log_draft_number(const char *name)
{
    return read_name(name, DRAFT_SUFFIX);
}

/* ---- frames --------------------------------------------------------------------------------------------------------- */

static uint64_t seed_of(uint64_t salt, uint64_t sequence)
{
    return salt + sequence * UINT64_C(0x9e3779b97f4a7c15);
}

/* Over all of the frame that follows the checksum, in its two parts. */
static uint32_t checksum(uint64_t seed, const unsigned char *head, size_t head_len, const unsigned char *payload,
                         size_t payload_len)
{
    return (uint32_t)XXH3_64bits_withSeed(payload, payload_len, XXH3_64bits_withSeed(head, head_len, seed));
}

size_t log_frame_head(const struct log_frame *frame, uint64_t salt, unsigned char head_out[LOG_FRAME_HEAD_MAX])
{
    uint64_t seed = seed_of(salt, frame->sequence);
    unsigned char *at = head_out + 4;

    *at++ = (unsigned char)frame->sequence;
    *at++ = (unsigned char)(frame->sequence >> 8);
    at = varint_put(at, frame->sequence - frame->synced);
    at = varint_put(at, (uint64_t)frame->payload_len << 1 | frame->has_controls);
    if (frame->payload_len >= LONG_FRAME)
        at = put32(at, (uint32_t)XXH3_64bits_withSeed(head_out + 4, (size_t)(at - head_out) - 4, seed));
    size_t len = (size_t)(at - head_out);
    put32(head_out, checksum(seed, head_out + 4, len - 4, frame->payload, frame->payload_len));
    return len;
}

/* What comes before the payload; its length, or 0 if that cannot be of this frame. */
static size_t parse_head(const unsigned char *bytes, size_t len, uint64_t seed, uint64_t sequence, struct log_frame *frame_out)
{
    uint64_t distance, size;

    if (len < HEAD_FIXED)
        return 0;
    const unsigned char *at = bytes + HEAD_FIXED, *end = bytes + len;
    if (bytes[4] != (unsigned char)sequence || bytes[5] != (unsigned char)(sequence >> 8))
        return 0;
    if (!varint_get(&at, end, &distance) || distance == 0 || distance > sequence || !varint_get(&at, end, &size))
        return 0;
    if (size >> 1 > LOG_PAYLOAD_MAX)
        return 0;
    if (size >> 1 >= LONG_FRAME) {
        if (end - at < 4 || get32(at) != (uint32_t)XXH3_64bits_withSeed(bytes + 4, (size_t)(at - bytes) - 4, seed))
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
    if (get32(bytes) != checksum(seed, bytes + 4, head - 4, frame_out->payload, frame_out->payload_len))
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
        /* A frame says by how much it is ahead of a synced one, which is not 0. */
        while (at + HEAD_FIXED < len && bytes[at + HEAD_FIXED] == 0)
            at++;
        if (at + HEAD_FIXED >= len)
            break;
        uint16_t low = (uint16_t)(bytes[at + 4] | bytes[at + 5] << 8);
        uint64_t sequence = after + 1 + (uint16_t)(low - (uint16_t)(after + 1));
        size_t n = log_frame_parse(bytes + at, len - at, salt, sequence, frame_out);
        if (n) {
            *len_out = n;
            return at;
        }
    }
    return len;
}
