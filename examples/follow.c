// Answers the lines of its input from a local copy of a filter, which it fetches again when it is old (docs/LOCAL.md):
//   eval cc follow.c "$(pkg-config --cflags --libs bloomery libcurl)" -o follow
//   ./follow http://127.0.0.1:9379/filters/NAME [SECONDS]
#include <bloomery.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *field(CURL *curl, const char *name)
{
    struct curl_header *found;
    return curl_easy_header(curl, name, 0, CURLH_HEADER, -1, &found) == CURLHE_OK ? found->value : "";
}

static bloomery_filter *refresh(CURL *curl, bloomery_filter *filter, char *etag)
{ /* of 128 bytes, at first "" */
    char *data = NULL, if_none_match[160], text[BLOOMERY_TEXT] = "no copy";
    size_t size = 0;
    long status = 0;
    bloomery_filter *newer = NULL;
    FILE *body = open_memstream(&data, &size);
    snprintf(if_none_match, sizeof(if_none_match), "If-None-Match: %s", etag);
    struct curl_slist *fields = curl_slist_append(NULL, if_none_match);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    int whole = curl_easy_perform(curl) == CURLE_OK; /* not where the reply is cut off */
    fclose(body);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (whole && status == 200 && !*field(curl, "Bloomery-Key") && /* whose items only the server can hash */
        bloomery_read(data, size, field(curl, "Bloomery-Layout"), atoi(field(curl, "Bloomery-Layers")), &newer, text,
                      sizeof(text)) == BLOOMERY_OK) {
        snprintf(etag, 128, "%s", field(curl, "ETag"));
        bloomery_free(filter);
    } else if (status != 304) /* the copy stays what it was */
        fprintf(stderr, "%ld: %s\n", status, text);
    curl_slist_free_all(fields);
    free(data);
    return newer ? newer : filter;
}

int main(int argc, char **argv)
{
    CURL *curl = curl_easy_init();
    bloomery_filter *filter = NULL;
    char line[4096], etag[128] = "";
    time_t looked = 0, every = argc > 2 ? atoi(argv[2]) : 60;
    for (curl_easy_setopt(curl, CURLOPT_URL, argv[1]); fgets(line, sizeof(line), stdin);) {
        line[strcspn(line, "\n")] = 0;
        if (time(NULL) - looked >= every)
            filter = refresh(curl, filter, etag), looked = time(NULL);
        puts(!filter ? "not known" : bloomery_has(filter, line, strlen(line)) ? "maybe" : "no");
    }
}
