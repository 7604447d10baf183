// Statistics as text, the series' bound, and the file that is only ever whole.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "statistics/file.h"
#include "statistics/format.h"
#include "statistics/series.h"

namespace cgx::statistics {
namespace {

namespace fs = std::filesystem;

Record someRecord() {
  Record record{.id = 3, .rank = 1, .ranks = 4, .bits = 4, .open = true, .counters = {}};
  collective::Counters& c = record.counters;
  c.operations = 12;
  c.inputBytes = 9000;
  c.wireBytes = 1500;
  c.messages = 40;
  c.zeroTiles = 2;
  c.rawTiles = 5;
  c.allReduces = {10, 8000};
  c.allGathers = {1, 600};
  c.reduceScatters = {1, 400};
  c.smallOperations = 6;
  c.codedTiles = 20;
  c.exactTiles = 4;
  c.nonFiniteTiles = 1;
  c.wholeTiles = 1;
  c.sampledTiles = 3;
  c.errorSquares = 0.375;
  c.valueSquares = 1e21;
  c.encodeNs = 1'500'000'000;
  c.reduceNs = 2'000'001;
  c.decodeNs = 999;
  c.wireNs = 12'000'000'345;
  c.sizes[2] = {9, 4000, 700, 5000};
  c.sizes[collective::kSizeClasses - 1] = {1, 4000, 800, 6000};
  return record;
}

Snapshot someSnapshot() {
  Snapshot s{.host = "node-\"1\"\\\n\xff",
             .pid = 77,
             .rank = 5,
             .unixSeconds = 1000,
             .milliseconds = 2500,
             .unlisted = 1,
             .sums = {},
             .records = {someRecord()},
             .series = {}};
  add(s.sums, s.records[0]);
  s.series.push_back({2500, s.sums});
  return s;
}

TEST(StatisticsText, JsonIsTheDocumentedForm) {
  const std::string text = toJson(someSnapshot());
  EXPECT_EQ(text, R"({
  "schema": "cgx-statistics",
  "version": 1,
  "cgx": ")" CGX_VERSION R"(",
  "host": "node-\"1\"\\\u000a\u00ff",
  "pid": 77,
  "rank": 5,
  "unixSeconds": 1000,
  "milliseconds": 2500,
  "sums": {"operations": 12, "inputBytes": 9000, "exactBytes": 12750, "wireBytes": 1500, "encodeNs": 1500000000, "reduceNs": 2000001, "decodeNs": 999, "wireNs": 12000000345, "sampledTiles": 3, "errorSquares": 0.375, "valueSquares": 1e+21},
  "unlisted": 1,
  "communicators": [
    {"id": 3, "rank": 1, "ranks": 4, "bits": 4, "open": true,
     "operations": 12, "allReduces": 10, "allGathers": 1, "reduceScatters": 1, "smallOperations": 6, "inputBytes": 9000, "exactBytes": 12750, "wireBytes": 1500, "messages": 40,
     "codedTiles": 20, "zeroTiles": 2, "rawTiles": 5, "exactTiles": 4, "nonFiniteTiles": 1, "wholeTiles": 1,
     "sampledTiles": 3, "errorSquares": 0.375, "valueSquares": 1e+21,
     "encodeNs": 1500000000, "reduceNs": 2000001, "decodeNs": 999, "wireNs": 12000000345,
     "sizes": [
      {"upToBytes": 4096, "operations": 9, "inputBytes": 4000, "wireBytes": 700, "ns": 5000},
      {"upToBytes": 0, "operations": 1, "inputBytes": 4000, "wireBytes": 800, "ns": 6000}]}],
  "series": [
    {"milliseconds": 2500, "operations": 12, "inputBytes": 9000, "exactBytes": 12750, "wireBytes": 1500, "encodeNs": 1500000000, "reduceNs": 2000001, "decodeNs": 999, "wireNs": 12000000345, "sampledTiles": 3, "errorSquares": 0.375, "valueSquares": 1e+21}]
}
)");
  const auto parsed = nlohmann::json::parse(text);
  EXPECT_EQ(parsed["communicators"][0]["sizes"][0]["operations"], 9);
  EXPECT_EQ(nlohmann::json::parse(toJson({}))["communicators"].size(), 0U);
}

TEST(StatisticsText, PrometheusHasEachFamilyOnceWithEscapedLabels) {
  Snapshot snapshot = someSnapshot();
  snapshot.host = "a\"b\\c\nd";
  snapshot.records.push_back({.id = 4, .counters = {}});
  const std::string text = toPrometheus(snapshot);
  const std::string labels = R"({host="a\"b\\c\nd",rank="5",comm="3")";
  for (const char* line : {R"(,kind="all_reduce"} 10)", R"(,kind="all_gather"} 1)"})
    EXPECT_NE(text.find("\ncgx_operations_total" + labels + line + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ncgx_exact_bytes_total" + labels + "} 12750\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ncgx_tiles_total" + labels + R"(,form="raw"} 5)" + "\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\ncgx_seconds_total" + labels + R"(,stage="wire"} 12.000000345)" + "\n"), std::string::npos);
  EXPECT_NE(text.find("\ncgx_seconds_total" + labels + R"(,stage="decode"} 0.000000999)" + "\n"), std::string::npos);
  // Every line is a comment or a sample of the family that was announced last, and no family comes twice.
  std::istringstream lines(text);
  std::set<std::string> families;
  std::string family;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << family;
    } else if (line.starts_with("# TYPE ")) {
      EXPECT_EQ(line, "# TYPE " + family + " counter");
    } else {
      EXPECT_TRUE(line.starts_with(family + "{host=")) << line;
    }
  }
  EXPECT_NE(text.find("\ncgx_error_squares_total" + labels + "} 0.375\n"), std::string::npos) << text;
  EXPECT_EQ(families.size(), 12U);
}

TEST(StatisticsText, TheLineSaysWhatTheNumbersSay) {
  EXPECT_EQ(
      summary(someRecord()),
      "rank 1 of 4: 12 operations, 9000 bytes in, 1500 bytes on the wire, exact 12750 (ratio 8.50); 6 exact because "
      "small; tiles: 20 coded, 2 zero, 4 exact by choice or size, 1 raw (1 with Inf or NaN), 1 whole; NMSE 3.75e-22 (3 "
      "tiles sampled); encode 1500 ms, reduce 2 ms, "
      "decode 0 ms, wire 12000 ms");
  EXPECT_NE(summary({}).find("(ratio -)"), std::string::npos);
  EXPECT_NE(summary({}).find("NMSE - (0 tiles sampled)"), std::string::npos);
}

TEST(StatisticsText, ExactBytesDoNotOverflow) {
  Record record{.ranks = 1000, .counters = {}};
  record.counters.allReduces.inputBytes = std::uint64_t{1} << 60;
  EXPECT_NEAR(static_cast<double>(exactBytesOf(record)) / (2.0 * 999 / 1000 * 0x1p60), 1, 1e-12);
}

TEST(StatisticsSeries, IsBoundedCoversTheRunAndStaysInOrder) {
  Series series;
  constexpr std::uint64_t kOffered = 100'000;
  for (std::uint64_t i = 0; i < kOffered; ++i) {
    series.offer({.milliseconds = i, .sums = {}});
    ASSERT_LE(series.samples().size(), Series::kMost);
  }
  const auto& samples = series.samples();
  ASSERT_GE(samples.size(), Series::kMost / 2);
  EXPECT_EQ(samples.front().milliseconds, 0U);
  const std::uint64_t gap = samples[1].milliseconds;
  for (std::size_t i = 0; i < samples.size(); ++i) ASSERT_EQ(samples[i].milliseconds, i * gap);
  EXPECT_LT(kOffered - samples.back().milliseconds, gap + 1);
}

TEST(StatisticsFile, NamesAreExpandedOnce) {
  EXPECT_EQ(expand("/x/%h-%p-%r.json", "node", 12, 3), "/x/node-12-3.json");
  EXPECT_EQ(expand("/x/%%h%%%p", "node", 12, 3), "/x/%h%12");
  EXPECT_EQ(expand("/%h", "%p/../%s", 12, 3), "/%p_.._%s");
}

class StatisticsFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cgx-statistics-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  static std::string read(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(StatisticsFileTest, IsReplacedWhole) {
  const fs::path file = folder_ / "s.json";
  write(file, "a longer old text");
  const int old = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(replaceFile(file, "new").ok());
  EXPECT_EQ(read(file), "new");
  char text[32] = {};
  EXPECT_EQ(::read(old, text, sizeof text), 17) << "whoever reads the old file keeps it";
  ::close(old);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(StatisticsFileTest, LinksAreReplacedNotFollowed) {
  const fs::path victim = folder_ / "victim";
  const fs::path file = folder_ / "s.json";
  const fs::path beside = file.string() + ".tmp." + std::to_string(::getpid());
  write(victim, "precious");
  fs::create_symlink(victim, file);
  fs::create_symlink(victim, beside);
  ASSERT_TRUE(replaceFile(file, "new").ok());
  EXPECT_EQ(read(victim), "precious");
  EXPECT_EQ(fs::symlink_status(file).type(), fs::file_type::regular);
  EXPECT_EQ(read(file), "new");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(StatisticsFileTest, ADeviceOrAPipeIsNotReplaced) {
  const fs::path pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(replaceFile(pipe, "x").code(), Code::Invalid);
  EXPECT_EQ(fs::status(pipe).type(), fs::file_type::fifo);
  EXPECT_EQ(replaceFile("/dev/null", "x").code(), Code::Invalid);
  EXPECT_EQ(fs::status("/dev/null").type(), fs::file_type::character);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(StatisticsFileTest, WhatCannotBeWrittenIsAnErrorWithItsReason) {
  EXPECT_EQ(replaceFile(folder_ / "none" / "s.json", "x").sysErrno(), ENOENT);
  fs::create_directory(folder_ / "folder");
  EXPECT_EQ(replaceFile(folder_ / "folder", "x").sysErrno(), EISDIR);
  EXPECT_EQ(entries(), 1U) << "nothing is left behind";
}

TEST_F(StatisticsFileTest, AFullDiskIsAnErrorAndTheOldFileStays) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr int kSkipped = 77;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=16k") != 0)
      ::_exit(kSkipped);
    const fs::path file = folder_ / "s.json";
    if (!replaceFile(file, "old").ok()) ::_exit(1);
    const Status full = replaceFile(file, std::string(1 << 20, 'x'));
    if (full.sysErrno() != ENOSPC) ::_exit(2);
    if (read(file) != "old") ::_exit(3);
    ::_exit(entries() == 1 ? 0 : 4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a small file system needs root (CAP_SYS_ADMIN) to mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(StatisticsFileTest, ARequestIsTakenOnceAndItsTargetStays) {
  const fs::path file = folder_ / "s.json";
  EXPECT_FALSE(takeRequest(file));
  write(file.string() + ".request", "");
  EXPECT_TRUE(takeRequest(file));
  EXPECT_FALSE(takeRequest(file));
  write(folder_ / "victim", "precious");
  fs::create_symlink(folder_ / "victim", file.string() + ".request");
  EXPECT_TRUE(takeRequest(file));
  EXPECT_EQ(read(folder_ / "victim"), "precious");
}

}  // namespace
}  // namespace cgx::statistics
