/* sim_commands: the commands of a simulated daemon's clients: which ones, and their words.
 *
 * Thread: one at a time. */
#pragma once

#include "sim_client.h"
#include "sim_model.h"

#define NAME_SIZE 16

/* The text of a name, and its database. */
const char *command_name(char text[NAME_SIZE], bool shared, unsigned client, unsigned name);
unsigned command_database(bool shared, unsigned client, unsigned name);

/* The text of an item. Those of cuckoo filters have different fingerprints. */
const char *command_item(char text[NAME_SIZE], enum family family, unsigned item);

/* A command of a client, chosen at random. */
void command_choose(const struct model *model, unsigned client, struct op *op_out);

/* Appends the command's words, with MULTI and EXEC or SELECT around them, to what the client sends. `shown`: prints
 * them. */
void command_send(struct sim_client *to, struct model *model, unsigned client, struct op *op, bool shown);
