/* sim_sstables: a table of a simulated Cassandra in `sstable-dir` of the daemon. It flushes new SSTables, and compacts
 * old ones into new ones, one file operation at a time. An SSTable is complete when its TOC.txt is there; the old ones
 * are removed after that. So a key that a complete SSTable has had is always in one.
 *
 * A client asks BF.FIND and BF.EXISTS. An SSTable that the daemon has named once, or that was complete before its
 * start, must be found or unknown as long as it is there; and a key for ever, in whichever SSTable it is. None is named
 * before it is complete, or old.
 *
 * The files are real ones, below the working directory, since the daemon reads them past its disk. Their times are
 * those of the run.
 *
 * Thread: the first thread of a run of the schedule. */
#pragma once

#include <stdbool.h>

#include "sim_model.h"

#define SIM_SSTABLE_DIRS "a:b" /* two nodes */

/* Before the daemon's start: makes the directories, and some SSTables. `starves`: the daemon's thread of SSTables may
 * lack memory, and lose some of it. */
void sim_sstables_begin(struct model *model, bool shown, bool starves);
void sim_sstables_connect(void);

/* A few operations, and maybe a question. */
void sim_sstables_step(void);

/* Takes the answer if it is there. False: the connection is closed. *waits_out: it is not. */
bool sim_sstables_take(bool *waits_out);

/* When nothing changes any more, the daemon soon knows all SSTables that are there, and no others. */
void sim_sstables_come_to_rest(void);

/* Removes all that is in the working directory. After the end of the process that has made it. */
void sim_sstables_remove(void);
