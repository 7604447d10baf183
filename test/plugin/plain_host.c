/* The least host that a plugin can have: C, no CUDA, no C++ runtime, symbols resolved at once. plain_host LIBRARY */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int missing = 0;
  void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (library == NULL) {
    fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "one argument: the library");
    return 1;
  }
  for (int version = 6; version <= 12; ++version) {
    for (int i = 0; i < 2; ++i) {
      char name[64];
      snprintf(name, sizeof name, i == 0 ? "ncclNetPlugin_v%d" : "ncclCollNetPlugin_v%d", version);
      const char** table = (const char**)dlsym(library, name);
      if (table == NULL || table[0] == NULL) {
        fprintf(stderr, "%s: missing\n", name);
        ++missing;
      }
    }
  }
  /* v6: init(logger), devices(count), without any logger. */
  void** table = (void**)dlsym(library, "ncclNetPlugin_v6");
  int count = 0;
  if (missing == 0 && (((int (*)(void*))table[1])(NULL) != 0 || ((int (*)(int*))table[2])(&count) != 0 || count < 1)) {
    fprintf(stderr, "init failed\n");
    return 1;
  }
  if (dlclose(library) != 0) return 1;
  return missing;
}
