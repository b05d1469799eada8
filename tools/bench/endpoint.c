/* Connections to the server: opening them, and single questions. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "load.h"

static int connect_unix(const char *path, struct errbuf *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path)) {
        errbuf_set(err, "the socket's path is longer than %zu bytes", sizeof(address.sun_path) - 1);
        return -ENAMETOOLONG;
    }
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    int status = -errno;
    errbuf_set(err, "cannot connect to %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return status;
}

static int connect_tcp(const struct endpoint *endpoint, struct errbuf *err)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    int fd = -1, one = 1, status = getaddrinfo(endpoint->host, endpoint->port, &hints, &list);
    if (status != 0) {
        errbuf_set(err, "cannot find %s: %s", endpoint->host, gai_strerror(status));
        return -EHOSTUNREACH;
    }
    for (struct addrinfo *a = list; a; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            break;
        status = -errno;
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        errbuf_set(err, "cannot connect to %s port %s: %s", endpoint->host, endpoint->port, strerror(-status));
    else
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return fd < 0 ? status : fd;
}

/* ---- one question at a time -------------------------------------------------------------------------------------- */

static int send_words(int fd, const char *const *words, unsigned nwords)
{
    char head[64];
    int n = snprintf(head, sizeof(head), "*%u\r\n", nwords);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_MORE) != n)
        return -errno;
    for (unsigned i = 0; i < nwords; i++) {
        size_t len = strlen(words[i]);
        n = snprintf(head, sizeof(head), "$%zu\r\n", len);
        if (send(fd, head, (size_t)n, MSG_NOSIGNAL | MSG_MORE) != n ||
            send(fd, words[i], len, MSG_NOSIGNAL | MSG_MORE) != (ssize_t)len ||
            send(fd, "\r\n", 2, MSG_NOSIGNAL | (i + 1 < nwords ? MSG_MORE : 0)) != 2)
            return errno ? -errno : -EPIPE;
    }
    return 0;
}

/* Reads one whole reply; keeps its beginning. */
static int read_reply(int fd, char *text, size_t size, struct reply_reader *reader, struct errbuf *err)
{
    char data[16 * 1024];
    size_t kept = 0;
    while (reader->replies == 0) {
        ssize_t n = recv(fd, data, sizeof(data), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errbuf_set(err, "the server closed the connection");
            return -ECONNRESET;
        }
        if (!replies_take(reader, data, (size_t)n)) {
            errbuf_set(err, "the server does not speak the Redis protocol");
            return -EPROTO;
        }
        size_t keep = (size_t)n < size - 1 - kept ? (size_t)n : size - 1 - kept;
        memcpy(text + kept, data, keep);
        kept += keep;
    }
    text[kept] = '\0';
    return 0;
}

static int ask(int fd, const char *const *words, unsigned nwords, char *text, size_t size, struct errbuf *err)
{
    struct reply_reader reader = {0};
    int status = send_words(fd, words, nwords);
    if (status != 0) {
        errbuf_set(err, "cannot send: %s", strerror(-status));
        return status;
    }
    status = read_reply(fd, text, size, &reader, err);
    if (status == 0 && text[0] == '-') {
        errbuf_set(err, "%s: %s", words[0], reader.first_error);
        return -EREMOTEIO;
    }
    return status;
}

int endpoint_connect(const struct endpoint *endpoint, struct errbuf *err)
{
    char reply[256];
    int status = 0, fd = endpoint->unixpath ? connect_unix(endpoint->unixpath, err) : connect_tcp(endpoint, err);
    if (fd < 0)
        return fd;
    if (endpoint->password)
        status = ask(fd, (const char *const[]){"AUTH", endpoint->password}, 2, reply, sizeof(reply), err);
    if (status == 0 && endpoint->resp == 3)
        status = ask(fd, (const char *const[]){"HELLO", "3"}, 2, reply, sizeof(reply), err);
    if (status != 0) {
        close(fd);
        return status;
    }
    return fd;
}

int endpoint_ask(const struct endpoint *endpoint, const char *const *words, unsigned nwords, char *text, size_t size,
                 struct errbuf *err)
{
    int fd = endpoint_connect(endpoint, err);
    if (fd < 0)
        return fd;
    int status = ask(fd, words, nwords, text, size, err);
    close(fd);
    return status;
}
