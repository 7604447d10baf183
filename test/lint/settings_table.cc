// Prints the README's table of settings.
#include <cstdio>

#include "cgx/settings.h"

int main() {
  std::fputs(cgx::settingsMarkdown().c_str(), stdout);
  return 0;
}
