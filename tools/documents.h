/* documents: man pages (roff, section 1) and completion of shells, from tool_commands. Thread: any. */
#ifndef BLOOMERY_TOOL_DOCUMENTS_H
#define BLOOMERY_TOOL_DOCUMENTS_H

#include <stdio.h>

/* Writes a document to the stream, which remembers errors. `subject` is the struct tool_command of a page, else NULL.
 */
typedef void document_writer(FILE *stream, const void *subject);

document_writer write_main_page, write_command_page, write_bash_completion, write_zsh_completion;

#endif
