#include "terminal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool has_colours(void)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");

    return !(none && *none) && term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO);
}

const char *terminal_colour(enum terminal_colour colour)
{
    static const char *const codes[] = {
        [TERMINAL_PLAIN] = "\033[0m", [TERMINAL_RED] = "\033[1;31m", [TERMINAL_GREEN] = "\033[32m"};

    return has_colours() ? codes[colour] : "";
}
