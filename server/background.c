#include "background.h"

#include <errno.h>
#include <sys/resource.h>

#define BACKGROUND_NICE 10 /* more than the process has */

void background_begin(void)
{
    errno = 0;
    int nice = getpriority(PRIO_PROCESS, 0); /* Linux: 0 is the calling thread */
    if (nice != -1 || errno == 0)
        (void)setpriority(PRIO_PROCESS, 0, nice + BACKGROUND_NICE < 19 ? nice + BACKGROUND_NICE : 19);
}
