/* http: requests to the status page of a test's daemon, as bytes. Thread: any, on distinct objects. */
#pragma once

#include <stddef.h>

struct http_reply {
    int status;    /* 0: the connection ended without a reply */
    char *headers; /* "\r\nName: value\r\n...\r\n" */
    char *body;    /* with a NUL after it */
    size_t len;
    char *text; /* all of it; malloc'ed */
};

/* A connection to 127.0.0.1; a failure fails the test. */
int http_connect(int port);

/* Reads until the server closes the connection, which is closed then. Nothing for a minute fails the test. */
void http_read(int fd, struct http_reply *reply_out);

/* GET of a path; `headers` are lines that end with \r\n, or "". */
void http_get(int port, const char *path, const char *headers, struct http_reply *reply_out);

/* Sends these bytes and reads the reply. */
void http_ask(int port, const char *request, size_t len, struct http_reply *reply_out);

void http_free(struct http_reply *reply);
