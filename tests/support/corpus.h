/* corpus: plays a recorded conversation (tests/golden/corpus) against a server and compares its replies, line by line.
 *
 * A recording has `> ` and the sent command, in redis-cli's quoting, maybe with one of these:
 * - @nd, @srv: the reply differs from run to run, or depends on the recorded server; only its kind is compared
 * - @raw N "bytes": sends the bytes, and N replies follow; 0 or *: all replies until silence or the end
 * - @inline N text: the same for the text and CRLF
 * - @conn NAME: continues with the connection of that name
 * - @new, @new raw: a new connection instead of the current one; raw: without the HELLO 3 of a RESP3 play
 * - @range CMD key p A B: CMD key pA ... p(B-1) as one command
 * - @each CMD key p A B: CMD key pI for each I of A..B-1, one after another: the count of each reply, and a digest
 * - @copy SRC DST: BF.SCANDUMP of SRC and BF.LOADCHUNK of every chunk into DST, with all replies
 * - @sleep S: a pause, in seconds
 *
 * Then the reply: `< ` and each of its lines, `<~ ` and `<^ ` for @nd and @srv (the first line only), `<! closed` where
 * the server closed the connection, `<! silence` where no reply came. Thread: one at a time. */
#pragma once

#include <stddef.h>

#include "compat.h"
#include "wire.h"

struct corpus_case {
    char *command;      /* the sent line, in the form above */
    struct lines reply; /* with their marks, in the form above */
};

struct corpus {
    struct corpus_case *cases;
    size_t count;
};

void corpus_load(struct corpus *corpus, const char *path); /* a recording; fails the test when it cannot be read */
void corpus_deinit(struct corpus *corpus);

struct corpus_result {
    size_t cases;   /* played */
    size_t meant;   /* different, as the table allows */
    size_t differs; /* different otherwise; each has been printed */
};

/* The server that a recording is played against has this many threads: each is asked whether more is to come, where the
 * recording has nothing. */
#define CORPUS_THREADS 2

/* Plays all cases of a recording against 127.0.0.1, in the given version of RESP, after a FLUSHALL. With a path, the
 * recording's connections are to that Unix socket, and send byte by byte (wire_open_dripping()). */
struct corpus_result corpus_play(const struct corpus *corpus, int port, const char *path, int resp,
                                 struct compat *compat);

/* The end of a topic, after all of its plays: `sum` is their results added up. Fails the test unless every reply was
 * as recorded or as the table allows, and each row of `compat` from the n-th on explains a difference; `document`
 * names the file of these rows. */
void corpus_result_add(struct corpus_result *sum, struct corpus_result result);
void corpus_judge(const char *topic, const struct corpus_result *sum, const struct compat *compat, size_t n,
                  const char *document);

/* Cuts a line into words as redis-cli does; false for unbalanced quotes. The words' bytes are malloc'ed into
 * *bytes_out. */
bool corpus_split(const char *line, struct word *words, size_t max, size_t *n_out, char **bytes_out);

/* Whether two replies, as lines with their marks, are the same except for the bytes of dumps, their iterators, and the
 * number of chunks in a copy. */
bool corpus_same_but_dumps(const struct lines *recorded, const struct lines *got);
