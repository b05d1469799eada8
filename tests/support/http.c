#include "http.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int http_connect(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct timeval patience = {.tv_sec = 60};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

void http_read(int fd, struct http_reply *reply_out)
{
    size_t size = 65536, used = 0;
    ssize_t got;
    *reply_out = (struct http_reply){.text = malloc(size)};
    while (reply_out->text && (got = recv(fd, reply_out->text + used, size - used - 1, 0)) > 0) {
        used += (size_t)got;
        if (used + 1 == size)
            reply_out->text = realloc(reply_out->text, size *= 2);
    }
    close(fd);
    cr_assert_not_null(reply_out->text);
    reply_out->text[used] = '\0';
    char *end = strstr(reply_out->text, "\r\n\r\n");
    if (!end || sscanf(reply_out->text, "HTTP/1.%*d %d", &reply_out->status) != 1)
        return;
    reply_out->headers = strstr(reply_out->text, "\r\n");
    reply_out->body = end + 4;
    reply_out->len = used - (size_t)(reply_out->body - reply_out->text);
    end[2] = '\0';
}

void http_ask(int port, const char *request, size_t len, struct http_reply *reply_out)
{
    int fd = http_connect(port);
    (void)!send(fd, request, len, MSG_NOSIGNAL);
    http_read(fd, reply_out);
}

void http_get(int port, const char *path, const char *headers, struct http_reply *reply_out)
{
    char request[8192];
    int len = snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, headers);
    cr_assert_lt(len, (int)sizeof(request));
    http_ask(port, request, (size_t)len, reply_out);
}

void http_free(struct http_reply *reply)
{
    free(reply->text);
    *reply = (struct http_reply){0};
}
