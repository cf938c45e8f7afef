// Copy values to pinned memory of the host, and record an event after the copy. Nothing waits.
#pragma once
#include "device.h"

namespace neus {

inline void copy_later(const HostCopy &layout, long, const void *values, int *) {
    copy_to_host((void *)(uintptr_t)layout.host, values, layout.bytes, (void *)(uintptr_t)layout.event);
}

}  // namespace neus
