/* Stands in for libcuda.so.1 on a machine without a card: one card, as large and as capable as it is asked to be. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}
int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { return *version = number("PRETEND_DRIVER", 13000), 0; }
int cuDeviceGetCount(int *count) { return *count = 1, 0; }
int cuDeviceGet(int *device, int index) { return *device = index, 0; }
int cuDeviceGetName(char *name, int size, int device) { return strncpy(name, "pretend card", size), 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = (size_t)16 << 30, 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const int capability = number("PRETEND_CAPABILITY", 90);
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0;
    return 0;
}
