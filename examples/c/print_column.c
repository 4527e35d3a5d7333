/* Prints a column of a table of a file, a line a row; "-" where a value is unknown.
 *
 *     print_column program.epr calls duration
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "open.h"

static void
print(const ep_trace *trace, const ep_column *column, const ep_values *values)
{
    for (size_t row = 0; row < values->count; row++) {
        if (!ep_value_is_known(trace, column, values, row)) {
            puts("-");
        } else if (column->type == EP_TYPE_FLOAT64) {
            printf("%.17g\n", ((const double *)values->at)[row]);
        } else if (column->reading == EP_READ_NUMBER) {
            printf("%" PRId64 "\n", ep_value_int64(column, values, row));
        } else if (column->reading == EP_READ_ADDRESS) {
            printf("%#" PRIx64 "\n", (uint64_t)ep_value_int64(column, values, row));
        } else {
            ep_text text = ep_column_text(column, ep_value_int64(column, values, row));
            printf("%.*s\n", (int)text.bytes, text.at);
        }
    }
}

/* Returns: NULL, there is no such column. */
static const ep_column *
find(const char *table, const char *name)
{
    for (const ep_column *column = ep_table_columns; column->name != NULL; column++) {
        if (strcmp(ep_table_names[column->table], table) == 0 && strcmp(column->name, name) == 0) {
            return column;
        }
    }
    return NULL;
}

int
main(int count, char **words)
{
    if (count != 4) {
        fprintf(stderr, "usage: print_column FILE TABLE COLUMN\n");
        return 2;
    }
    const ep_column *column = find(words[2], words[3]);
    if (column == NULL) {
        fprintf(stderr, "%s has no column %s\n", words[2], words[3]);
        return 2;
    }
    ep_trace trace = {0};
    ep_values values = {0};
    ep_error error = {.text = "out of memory"};
    ep_status status = ep_trace_open(words[1], &trace, &error);
    if (status == EP_OK) {
        status = ep_trace_get(&trace, column, &values, &error);
    }
    if (status == EP_OK) {
        print(&trace, column, &values);
    } else {
        fprintf(stderr, "%s: %s\n", words[1], error.text);
    }
    ep_values_clear(&values);
    ep_trace_clear(&trace);
    return status == EP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
