// The options that the patches add to nccl-tests: taken out of argv before nccl-tests reads it. Knows no NCCL and no
// CUDA, so that a plain C++ compiler can test it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cgx {

constexpr int kExactBits = 32;

struct Options {
  int bits = 0;  // -E: 1..8 or 32: all-reduces are checked against this width's error bound; 0: as nccl-tests does
  bool nearest = false;    // CGX_ROUNDING=nearest halves the bound
  bool gradients = false;  // -B 1: data like gradients
  bool wire = false;       // -W 1: a column with what the plugin sent
};

inline Options& options() {
  static Options o;
  return o;
}

/// Number in [low, high] or what is in the way.
inline bool readNumber(const char* text, int low, int high, int* out) {
  char* end = nullptr;
  const long value = strtol(text, &end, 10);
  if (end == text || *end != '\0' || value < low || value > high) return false;
  *out = static_cast<int>(value);
  return true;
}

inline bool setOption(char letter, const char* value, Options* out) {
  int number = 0;
  switch (letter) {
    case 'E':
      if (!readNumber(value, 1, kExactBits, &number) || (number > 8 && number != kExactBits)) {
        fprintf(stderr, "-E, --cgx_bits: 1 to 8, or 32 for exact, not '%s'\n", value);
        return false;
      }
      out->bits = number;
      return true;
    case 'B':
    case 'W':
      if (!readNumber(value, 0, 1, &number)) {
        fprintf(stderr, "-%c: 0 or 1, not '%s'\n", letter, value);
        return false;
      }
      (letter == 'B' ? out->gradients : out->wire) = number == 1;
      return true;
    default:
      return false;
  }
}

inline void printUsage() {
  printf(
      "cgx options: \n\t"
      "[-E,--cgx_bits <1..8/32> check all-reduces of half, float and bfloat16 sums against the error bound of this "
      "width] \n\t"
      "[-B,--cgx_gradients <0/1> data that looks like gradients; checked as with -E, exact unless -E says otherwise] "
      "\n\t"
      "[-W,--cgx_wire <0/1> last column: how many times fewer bytes the plugin sent than an exact all-reduce] \n");
}

/// Takes our options out of argv; the rest keeps its order. Ends the program on a bad value, as nccl-tests does.
inline void parseOptions(int* argc, char** argv) {
  static const struct {
    char letter;
    const char* name;
  } known[] = {{'E', "--cgx_bits"}, {'B', "--cgx_gradients"}, {'W', "--cgx_wire"}};
  Options& o = options();
  const char* rounding = getenv("CGX_ROUNDING");
  o.nearest = rounding != nullptr && strcmp(rounding, "nearest") == 0;
  int kept = 1;
  for (int i = 1; i < *argc; ++i) {
    const char* word = argv[i];
    if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0) printUsage();
    char letter = 0;
    const char* value = nullptr;
    for (const auto& option : known) {
      const size_t length = strlen(option.name);
      if (word[0] == '-' && word[1] == option.letter) {
        letter = option.letter;
        value = word[2] != '\0' ? word + 2 : nullptr;
      } else if (strncmp(word, option.name, length) == 0 && (word[length] == '\0' || word[length] == '=')) {
        letter = option.letter;
        value = word[length] == '=' ? word + length + 1 : nullptr;
      }
    }
    if (letter == 0) {
      argv[kept++] = argv[i];
      continue;
    }
    if (value == nullptr) value = i + 1 < *argc ? argv[++i] : "";
    if (!setOption(letter, value, &o)) exit(EXIT_FAILURE);
  }
  *argc = kept;
  argv[kept] = nullptr;
}

}  // namespace cgx
