/* lateness: how late the machine is. A processor or a disk that stops for seconds makes what a daemon does every second
 * as late; a test that expects it by a time waits this much longer. Thread: one at a time.
 *
 *   lateness_watch(dir);  by a thread that syncs a file in this directory all the time
 *   lateness_ms();        the most until now
 *   lateness_end(); */
#pragma once

#include <stdint.h>

void lateness_watch(const char *dir);
int64_t lateness_ms(void);
void lateness_end(void);
