// The tool's inputs: sizes, element types, .npy files, directories of gradients. Needs a temporary directory, nothing
// else.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tools/input.h"
#include "tools/npy.h"
#include "tools/numbers.h"
#include "tools/sizes.h"

namespace cgx::tool {
namespace {

namespace fs = std::filesystem;

class ToolFiles : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("cgx-tool-" + std::to_string(::getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  /// Writes a .npy file whose header's dictionary is `dictionary`.
  std::string write(const std::string& name, const std::string& dictionary, const std::string& data, char major = 1) {
    const fs::path path = directory_ / name;
    fs::create_directories(path.parent_path());
    std::string header = dictionary;
    header.resize((major == 1 ? 118 : 116), ' ');
    header.back() = '\n';
    std::string text = "\x93NUMPY";
    text += major;
    text += '\0';
    text += static_cast<char>(header.size());
    text.append(major == 1 ? 1 : 3, '\0');
    std::ofstream(path, std::ios::binary) << text << header << data;
    return path.string();
  }
  std::string writeFloats(const std::string& name, const std::vector<float>& values) {
    const std::string shape = "(" + std::to_string(values.size()) + ",)";
    return write(name, "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }",
                 {reinterpret_cast<const char*>(values.data()), values.size() * 4});
  }
  std::string errorOf(const std::string& path) {
    const Result<NpyFile> file = NpyFile::open(path);
    return file.ok() ? "" : file.status().text();
  }

  fs::path directory_;
};

TEST_F(ToolFiles, ReadsFlatFloatsAndHalvesOfBothHeaderVersions) {
  const std::vector<float> values{1, -2, 3.5F};
  Result<NpyFile> file = NpyFile::open(writeFloats("a.npy", values));
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_EQ(file->count(), 3U);
  std::vector<float> tail(2);
  ASSERT_TRUE(file->read(1, std::as_writable_bytes(std::span(tail))).ok());
  EXPECT_EQ(tail, (std::vector<float>{-2, 3.5F}));
  EXPECT_FALSE(file->read(2, std::as_writable_bytes(std::span(tail))).ok());

  Result<NpyFile> halves = NpyFile::open(
      write("b.npy", "{'shape': (2, 2), 'fortran_order': False, 'descr': '<f2'}", std::string(8, '\0'), 2));
  ASSERT_TRUE(halves.ok()) << halves.status().text();
  EXPECT_EQ(halves->count(), 4U);
  EXPECT_EQ(halves->dtype(), DType::F16);
}

TEST_F(ToolFiles, RefusesWhatItCannotReadAndSaysWhy) {
  const std::string data(64, '\0');
  EXPECT_NE(errorOf(write("a.npy", "{'descr': '>f4', 'fortran_order': False, 'shape': (4,), }", data)).find("'>f4'"),
            std::string::npos);
  EXPECT_NE(errorOf(write("b.npy", "{'descr': '<f4', 'fortran_order': True, 'shape': (4,4), }", data)).find("Fortran"),
            std::string::npos);
  EXPECT_NE(
      errorOf(write("c.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (17,), }", data)).find("17 elements"),
      std::string::npos);
  EXPECT_NE(errorOf(write("d.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", data)).find("shape"),
            std::string::npos);
  EXPECT_NE(errorOf(write("e.npy", "{'descr': '<f4', 'shape': (99999999999,99999999999,), }", data)).find("shape"),
            std::string::npos);
  std::ofstream(directory_ / "f.npy") << "no array at all";
  EXPECT_NE(errorOf((directory_ / "f.npy").string()).find("not a .npy"), std::string::npos);
  EXPECT_NE(errorOf((directory_ / "absent.npy").string()).find("absent.npy"), std::string::npos);
}

TEST_F(ToolFiles, MakesOneRowForEachSetInOrderOfTheirNames) {
  for (const char* set : {"net/step2", "net/step1"})
    for (int rank = 0; rank < 2; ++rank)
      writeFloats(std::string(set) + "/rank" + std::to_string(rank) + ".npy", {static_cast<float>(rank), 5});
  Result<std::vector<Row>> rows = gradientRows(directory_.string(), 2, nullptr);
  ASSERT_TRUE(rows.ok()) << rows.status().text();
  ASSERT_EQ(rows->size(), 2U);
  EXPECT_EQ(rows.value()[0].name, "net/step1");
  EXPECT_EQ(rows.value()[1].name, "net/step2");
  std::vector<float> values(2);
  ASSERT_TRUE(rows.value()[0].input->read(1, 0, values).ok());
  EXPECT_EQ(values, (std::vector<float>{1, 5}));
}

TEST_F(ToolFiles, SaysSoWhenASetHasOtherThanOneFileForEachRank) {
  for (int rank = 0; rank < 2; ++rank) writeFloats("set/rank" + std::to_string(rank) + ".npy", {1, 2});
  const Result<std::vector<Row>> four = gradientRows(directory_.string(), 4, nullptr);
  EXPECT_NE(four.status().text().find("of 2 ranks, but there are 4"), std::string::npos) << four.status().text();
  writeFloats("set/rank5.npy", {1, 2});
  const Result<std::vector<Row>> gap = gradientRows(directory_.string(), 3, nullptr);
  EXPECT_NE(gap.status().text().find("numbered 0 to 2"), std::string::npos) << gap.status().text();
  writeFloats("set/rank2.npy", {1, 2, 3});
  fs::remove(directory_ / "set/rank5.npy");
  const Result<std::vector<Row>> longer = gradientRows(directory_.string(), 3, nullptr);
  EXPECT_NE(longer.status().text().find("rank2.npy differs"), std::string::npos) << longer.status().text();
}

TEST_F(ToolFiles, NamesADirectoryThatIsMissingOrEmpty) {
  EXPECT_NE(gradientRows("/nonexistent", 4, nullptr).status().text().find("no such directory"), std::string::npos);
  EXPECT_NE(gradientRows(directory_.string(), 4, nullptr).status().text().find("no rank<k>.npy"), std::string::npos);
}

TEST(ToolSizes, ParsesRangesStepsAndLists) {
  const auto sizes = [](const char* text) {
    Result<std::vector<std::size_t>> list = parseSizes(text);
    return list.ok() ? std::move(list).value() : std::vector<std::size_t>();
  };
  EXPECT_EQ(sizes("1K:8K:x2"), (std::vector<std::size_t>{1024, 2048, 4096, 8192}));
  EXPECT_EQ(sizes("1K:7K:x2"), (std::vector<std::size_t>{1024, 2048, 4096}));
  EXPECT_EQ(sizes("1:10:+4"), (std::vector<std::size_t>{1, 5, 9}));
  EXPECT_EQ(sizes("64K,1MiB,3"), (std::vector<std::size_t>{65536, 1048576, 3}));
  EXPECT_EQ(sizes("1K:256M:x2").size(), 19U);
  for (const char* bad :
       {"", "x", "1K:", "8K:1K", "1K:8K:x1", "1K:8K:2", "1K:8K:x2:x2", "0", "1T", "-1", "1K:8K:+0", "1KK"})
    EXPECT_TRUE(sizes(bad).empty()) << bad;
}

TEST(ToolSizes, ShowsSizesInTheLargestWholeUnit) {
  EXPECT_EQ(sizeText(1536), "1536 B");
  EXPECT_EQ(sizeText(64 << 10), "64 KiB");
  EXPECT_EQ(sizeText(3 << 20), "3 MiB");
}

/// Halves by their definition, in double.
double halfByDefinition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(ToolNumbers, ConvertEveryHalfBothWays) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = halfToFloat(half);
    if ((bits & 0x7c00) == 0x7c00) {
      EXPECT_EQ(std::isnan(value), (bits & 0x3ff) != 0);
      EXPECT_EQ(std::isinf(value), (bits & 0x3ff) == 0);
    } else {
      ASSERT_EQ(value, halfByDefinition(half));
    }
    if (!std::isnan(value)) {
      ASSERT_EQ(floatToHalf(value), half);
    }
  }
}

TEST(ToolNumbers, RoundHalvesToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = halfByDefinition(static_cast<std::uint16_t>(bits));
    const double high = halfByDefinition(static_cast<std::uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(floatToHalf(middle), bits + (bits & 1));
    ASSERT_EQ(floatToHalf(std::nextafter(middle, 0.0F)), bits);
    ASSERT_EQ(floatToHalf(std::nextafter(middle, 1e6F)), bits + 1);
  }
  EXPECT_EQ(floatToHalf(65519.99F), 0x7bff);
  EXPECT_EQ(floatToHalf(65520.0F), 0x7c00);
}

TEST(ToolNumbers, RoundBfloatsToNearestAndTiesToEven) {
  EXPECT_EQ(floatToBfloat(1.0F), 0x3f80);
  EXPECT_EQ(floatToBfloat(1.00390625F), 0x3f80);  // a tie, down to even
  EXPECT_EQ(floatToBfloat(1.01171875F), 0x3f82);  // a tie, up to even
  EXPECT_EQ(floatToBfloat(3.4e38F), 0x7f80);      // above the largest: Inf
  EXPECT_TRUE(std::isnan(bfloatToFloat(floatToBfloat(std::nanf("")))));
}

TEST(ToolSynthetic, GivesEachRankItsOwnValuesWhateverThePieces) {
  Result<std::vector<Row>> rows = syntheticRows("64K", DType::F32);
  ASSERT_TRUE(rows.ok());
  const Input& input = *rows->front().input;
  std::vector<float> whole(16384);
  std::vector<float> other(16384);
  ASSERT_TRUE(input.read(0, 0, whole).ok());
  ASSERT_TRUE(input.read(1, 0, other).ok());
  EXPECT_NE(whole, other);
  std::vector<float> piece(100);
  ASSERT_TRUE(input.read(0, 8150, piece).ok());  // across a layer's end
  EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + 8150));
}

}  // namespace
}  // namespace cgx::tool
