/* rig: a server in the test's process, with real workers and connections, but no listener: the test has the other ends
 * of socket pairs. The test can hold workers, so that they read all input since then in one iteration, and can call
 * functions on their threads. Any failure fails the test.
 *
 * Thread: the test's. */
#pragma once

#include <criterion/criterion.h>

#include "buf.h"
#include "ended_test.h"
#include "server_create.h"
#include "wait.h"
#include "worker.h"

/* A server that has loaded its directory, with a saver, and a log if set; `dir` NULL: its own empty directory, without
 * a log, which rig_end() removes. The settings are names and values, and end with NULL. */
struct server *rig_begin(unsigned workers, const char *dir, const char *const *settings);

/* For the requests of a test: empty at rig_begin(). */
extern struct buf rig_requests;

void rig_end(void); /* also closes the remaining connections */

#define RIG_TEST(suite, name) ENDED_TEST(suite, name, rig_end())

struct server *rig_server(void);

int rig_connect(unsigned worker); /* returns the client's end, non-blocking */
void rig_close(int fd);

/* Appends a request: words separated by spaces. */
void rig_request(struct buf *out, const char *line);
void rig_send_bytes(int fd, const void *bytes, size_t len);
bool rig_try_send(int fd, const void *bytes, size_t len); /* all of them, or false: no room for all */
void rig_send(int fd, const char *line);
void rig_send_buf(int fd, struct buf *requests); /* empties `requests` */

void rig_end_of_input(int fd); /* the client has sent its last byte */

/* Expects exactly these bytes next. */
void rig_expect(int fd, const char *bytes);
void rig_call(int fd, const char *line, const char *reply); /* rig_send(), rig_expect() */

/* Reads exactly this many bytes; the caller frees them. They end with a NUL. */
char *rig_read(int fd, size_t len);

/* The replies to `requests`, which ends with "PING end": all bytes before "+PONG" of that. The caller frees them. */
char *rig_replies(int fd, struct buf *requests, size_t *len_out);

void rig_expect_silence(int fd); /* nothing has arrived so far */
void rig_expect_end(int fd);     /* the server closes the connection */

/* Holds the workers, offline, until rig_let_go(). */
void rig_hold(void);
void rig_let_go(void);

/* Calls run(worker, arg) on the worker's thread, within an iteration, and waits for it. */
void rig_on_loop(unsigned worker, void (*run)(struct worker *worker, void *arg), void *arg);

/* Waits until the worker has done an iteration that begins after this call. */
void rig_pass(unsigned worker);
