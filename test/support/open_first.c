/* Opens plugins as NCCL does, in a process of its own: the loader's path counts from a process's start. Each line of
 * the input: SYMBOL, then names, a tab before each. Each line of the output: the file of the first name that opens, "-"
 * when none does, "no SYMBOL in FILE" when that one has no such symbol. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void answer(const char* symbol, void* library) {
  struct link_map* map = NULL;
  char file[PATH_MAX] = "?";
  if (library == NULL) {
    puts("-");
    return;
  }
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, file) == NULL) strcpy(file, "?");
  if (dlsym(library, symbol) == NULL)
    printf("no %s in %s\n", symbol, file);
  else
    puts(file);
  dlclose(library);
}

int main(void) {
  static char line[1 << 16];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = '\0';
    char* rest = line;
    const char* const symbol = strsep(&rest, "\t");
    void* library = NULL;
    while (library == NULL && rest != NULL) {
      const char* const name = strsep(&rest, "\t");
      library = dlopen(*name == '\0' ? NULL : name, RTLD_NOW | RTLD_LOCAL);
    }
    answer(symbol, library);
  }
  return 0;
}
