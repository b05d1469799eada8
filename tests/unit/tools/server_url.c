#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server_call.h"

struct vector {
    char text[96];
    char expected[96]; /* user|password|host|port|path|database|shown; "": invalid */
};

static const char *or_dash(const char *text)
{
    return text ? text : "-";
}

ParameterizedTestParameters(server_url, has_these_parts)
{
    static struct vector vectors[] = {
        {"redis://h", "-|-|h|6379|-|0|redis://h"},
        {"redis://", "-|-|127.0.0.1|6379|-|0|redis://"},
        {"redis://h:7000/3", "-|-|h|7000|-|3|redis://h:7000/3"},
        {"redis://h/", "-|-|h|6379|-|0|redis://h"},
        {"redis://:pw@h:1", "-|pw|h|1|-|0|redis://h:1"},
        {"redis://u:pw@h:1", "u|pw|h|1|-|0|redis://h:1"},
        {"redis://u@h", "u|-|h|6379|-|0|redis://h"},
        {"redis://u:@h", "u|-|h|6379|-|0|redis://h"},
        {"redis://u:a:b@c@h", "u|a:b@c|h|6379|-|0|redis://h"},
        {"redis://u%3a:p%40%25%C3%BC@h", "u:|p@%\xc3\xbc|h|6379|-|0|redis://h"},
        {"redis://[::1]:7000/1", "-|-|::1|7000|-|1|redis://[::1]:7000/1"},
        {"redis://[fe80::1]", "-|-|fe80::1|6379|-|0|redis://[fe80::1]"},
        {"valkey://h", "-|-|h|6379|-|0|redis://h"},
        {"unix:///run/x.sock", "-|-|-|-|/run/x.sock|0|unix:///run/x.sock"},
        {"redis+unix://u:p@/run/x%20y?db=4", "u|p|-|-|/run/x y|4|unix:///run/x%20y?db=4"},
        {"rediss://h", "-|-|h|6379|-|0|rediss://h"},
        {"valkeys://:p@h:7/2", "-|p|h|7|-|2|rediss://h:7/2"},
        {"http://h", ""},
        {"h:6379", ""},
        {"redis://h:0", ""},
        {"redis://h:65536", ""},
        {"redis://h:", ""},
        {"redis://h/x", ""},
        {"redis://h/-1", ""},
        {"redis://u:p%4@h", ""},
        {"redis://u:p%00@h", ""},
        {"redis://u:p%zz@h", ""},
        {"redis://[::1", ""},
        {"redis://[::1]x", ""},
        {"unix://", ""},
        {"unix:///s?x=1", ""},
    };
    return cr_make_param_array(struct vector, vectors, sizeof(vectors) / sizeof(vectors[0]));
}

ParameterizedTest(struct vector *vector, server_url, has_these_parts)
{
    static struct server_url url;
    struct errbuf err = {""};
    char got[8 * SERVER_URL_MAX];
    int status = server_url_read(&url, vector->text, &err);
    if (vector->expected[0] == '\0') {
        cr_assert_eq(status, -EINVAL, "%s", vector->text);
        cr_assert_neq(err.text[0], '\0');
        return;
    }
    cr_assert_eq(status, 0, "%s: %s", vector->text, err.text);
    const struct peer_address *a = &url.address;
    cr_assert_eq(url.with_tls, strstr(url.shown, "rediss://") != NULL);
    snprintf(got, sizeof(got), "%s|%s|%s|%s|%s|%lld|%s", or_dash(a->user), or_dash(a->password), or_dash(a->host),
             or_dash(a->port), or_dash(a->unixpath), (long long)a->database, url.shown);
    cr_assert_str_eq(got, vector->expected);
}

/* The longest texts fit with their passwords, and longer ones are refused. */
Test(server_url, long_texts)
{
    static struct server_url url;
    static char text[SERVER_URL_MAX + 1], password[2 * SERVER_URL_MAX];
    struct errbuf err = {""};
    memcpy(text, "redis://", 8);
    memset(text + 8, 'h', SERVER_URL_MAX - 8);
    cr_assert_eq(server_url_read(&url, text, &err), -EINVAL);
    text[SERVER_URL_MAX - 1] = '\0';
    cr_assert_eq(server_url_read(&url, text, &err), 0);
    cr_assert_eq(strlen(url.address.host), SERVER_URL_MAX - 9);
    memset(password, 'p', sizeof(password) - 1);
    cr_assert_eq(server_url_set_password(&url, password), -EINVAL);
    password[SERVER_URL_MAX - 1] = '\0';
    cr_assert_eq(server_url_set_password(&url, password), 0);
    cr_assert_str_eq(url.address.password, password);
    cr_assert_eq(strlen(url.address.host), SERVER_URL_MAX - 9);
}

Test(server_url, hides_the_password_alone)
{
    char with[] = "redis://user:se:c@ret@host/1", without[] = "redis://user@host", other[] = "a:b@c";
    server_url_hide(with);
    server_url_hide(without);
    server_url_hide(other);
    cr_assert_str_eq(with, "redis://user:********@host/1");
    cr_assert_str_eq(without, "redis://user@host");
    cr_assert_str_eq(other, "a:b@c");
}
