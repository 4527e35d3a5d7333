#include "recording.h"

#include <stdlib.h>

void
ep_recording_clear(ep_recording *recording)
{
    free(recording->metadata);
    *recording = (ep_recording){0};
}
