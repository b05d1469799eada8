/* terminal: colours of what is written to stderr: none where it is no terminal, where NO_COLOR is set to anything
 * (no-color.org), or where TERM is dumb. Thread: any. */
#ifndef BLOOMERY_TOOL_TERMINAL_H
#define BLOOMERY_TOOL_TERMINAL_H

enum terminal_colour { TERMINAL_PLAIN, TERMINAL_RED, TERMINAL_GREEN };

/* The bytes that switch to this colour, "" where there are none. */
const char *terminal_colour(enum terminal_colour colour);

#endif
