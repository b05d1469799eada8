/* terminal: colours on stderr: none if it is no terminal, NO_COLOR is set (no-color.org), or TERM is dumb. Thread: any.
 */
#ifndef BLOOMERY_TOOL_TERMINAL_H
#define BLOOMERY_TOOL_TERMINAL_H

enum terminal_colour { TERMINAL_PLAIN, TERMINAL_RED, TERMINAL_GREEN };

/* The escape sequence of the colour; "" without colours. */
const char *terminal_colour(enum terminal_colour colour);

#endif
