/* The compiler's call at each branch. A fuzzer has its own, so this is in the simulation only. */
#include "schedule.h"

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void)
{
    schedule_branch();
}
