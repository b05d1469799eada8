#include "monitor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bytes.h"
#include "clock.h"
#include "pubsub.h"
#include "secrets.h"

#define PIECE    ((size_t)64 * 1024) /* of lines that are published immediately */
#define MAX_LINE ((size_t)1024 * 1024)

static void append_text(struct buf *out, const char *text)
{
    buf_append(out, text, strlen(text));
}

/* The letter after the backslash, or 0 for a byte that has none. */
static char escape_letter(unsigned char c)
{
    static const char bytes[] = "\n\r\t\a\b\"\\", letters[] = "nrtab\"\\";
    const char *at = memchr(bytes, c, sizeof(bytes) - 1);
    return at ? letters[at - bytes] : 0;
}

/* In quotes, with escapes for everything that is not printable ASCII: a line stays a line. */
static void append_quoted(struct buf *out, struct slice arg, size_t max)
{
    size_t len = arg.len < max ? arg.len : max;
    char *room = buf_reserve(out, len * 4 + 2), *at = room;
    if (!room)
        return;
    *at++ = '"';
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)arg.ptr[i];
        char letter = escape_letter(c);
        if (letter) {
            *at++ = '\\';
            *at++ = letter;
        } else if (c >= 0x20 && c < 0x7f) {
            *at++ = (char)c;
        } else {
            at = hex_escape(at, arg.ptr[i]);
        }
    }
    *at++ = '"';
    buf_commit(out, (size_t)(at - room));
    if (len < arg.len) {
        char text[64];
        snprintf(text, sizeof(text), "... (%zu more bytes)", arg.len - len);
        append_text(out, text);
    }
}

/* Appends the line, without the line end: seconds.microseconds [database address] "argument" ... A longer line is cut
 * and has the number of missing bytes. */
static void format_line(struct buf *out, int64_t unix_us, unsigned db, const char *addr, const struct command *command,
                        const struct resp_command *cmd)
{
    size_t start = buf_len(out);
    struct secrets secrets;
    char text[160];
    secrets_begin(&secrets, command, cmd);
    snprintf(text, sizeof(text), "%" PRId64 ".%06d [%u %s%s]", unix_us / 1000000, (int)(unix_us % 1000000), db,
             addr[0] == '/' ? "unix:" : "", addr);
    append_text(out, text);
    for (size_t i = 0; i < cmd->argc; i++) {
        size_t used = buf_len(out) - start;
        if (used >= MAX_LINE) {
            snprintf(text, sizeof(text), " ... (%zu more arguments)", cmd->argc - i);
            append_text(out, text);
            return;
        }
        append_text(out, " ");
        append_quoted(out, secrets_word(&secrets, i), MAX_LINE - used);
    }
}

void monitor_init(struct monitor *monitor, struct pubsub *hub)
{
    monitor->hub = hub;
    buf_init(&monitor->lines, SIZE_MAX);
}

void monitor_look(struct monitor *monitor)
{
    monitor->watched = pubsub_has_listeners(monitor->hub, PUBSUB_MONITOR);
}

void monitor_feed(struct monitor *monitor, const struct session *session, const struct command *command,
                  const struct resp_command *cmd)
{
    if (command && command->flags & (CMD_SKIP_MONITOR | CMD_ADMIN))
        return;
    append_text(&monitor->lines, "+");
    format_line(&monitor->lines, clock_unix_us(), atomic_load_explicit(&session->db, memory_order_relaxed),
                session->origin.addr, command, cmd);
    append_text(&monitor->lines, "\r\n");
    if (buf_len(&monitor->lines) > PIECE || buf_failed(&monitor->lines))
        monitor_flush(monitor);
}

void monitor_flush(struct monitor *monitor)
{
    struct buf *lines = &monitor->lines;
    struct pubsub *hub = monitor->hub;
    struct slice none = {"", 0}, text = {buf_head(lines), buf_len(lines)};
    struct pubsub_receipt receipt;
    if (text.len == 0 && !buf_failed(lines))
        return;
    if (buf_failed(lines) || pubsub_publish(hub, PUBSUB_MONITOR, none, text, &receipt) != 0)
        pubsub_lose(hub, PUBSUB_MONITOR);
    if (buf_failed(lines) || lines->size > 4 * PIECE || !monitor->watched)
        buf_deinit(lines);
    else
        buf_truncate(lines, 0);
}
