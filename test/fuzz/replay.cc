// Runs a fuzzer's entry without libFuzzer: every file of the corpus, then seeded mutations of them, so that each
// compiler and sanitizer sees the same inputs in seconds. Usage: name_fuzz [corpus folder]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

std::vector<Input> corpusIn(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());  // the order that a directory lists is not the same everywhere
  std::vector<Input> inputs;
  for (const auto& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return inputs;
}

Input mutated(const Input& input, std::mt19937& random) {
  Input out = input;
  const auto below = [&](std::size_t limit) { return random() % limit; };
  switch (below(4)) {
    case 0:
      out.resize(below(out.size() + 1));
      break;
    case 1:
      out.resize(out.size() + below(64), static_cast<std::uint8_t>(random()));
      break;
    default:
      break;
  }
  for (std::size_t edits = below(8); edits > 0 && !out.empty(); --edits) {
    static constexpr std::uint8_t kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    std::uint8_t& byte = out[below(out.size())];
    byte = below(2) == 0 ? kEdges[below(std::size(kEdges))] : static_cast<std::uint8_t>(random());
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMutations = 20'000;
  std::vector<Input> inputs;
  if (argc > 1) inputs = corpusIn(argv[1]);
  const std::size_t files = inputs.size();
  inputs.emplace_back();
  for (const Input& input : inputs) LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937 random(1);
  for (int i = 0; i < kMutations; ++i) {
    const Input input = mutated(inputs[random() % inputs.size()], random);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu files and %d mutations replayed\n", files, kMutations);
  return 0;
}
