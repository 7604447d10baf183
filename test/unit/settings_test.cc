// Settings from text: strict, all or nothing, errors that a user can act on, one table for everything.
#include "cgx/settings.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace cgx {
namespace {

using Environment = std::map<std::string, std::string>;

Lookup lookupIn(const Environment& environment) {
  return [&environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}
Status load(Settings& out, const Environment& environment) { return load(out, lookupIn(environment)); }

Settings loaded(const Environment& environment) {
  Settings settings;
  const Status status = load(settings, environment);
  EXPECT_TRUE(status.ok()) << status.text();
  return settings;
}

std::string rejected(const Environment& environment) {
  Settings settings;
  const Status status = load(settings, environment);
  EXPECT_EQ(status.code(), Code::Invalid) << environment.begin()->first << "=" << environment.begin()->second;
  return status.text();
}

std::map<std::string, SettingRow> rowsOf(const Environment& environment) {
  std::map<std::string, SettingRow> rows;
  for (SettingRow& row : describe(loaded(environment), lookupIn(environment))) rows[row.name] = row;
  return rows;
}

constexpr const char* kUnicode = "\xc3\xa9\xe2\x82\xac";

TEST(Settings, AnEmptyEnvironmentGivesTheDocumentedDefaults) {
  const Settings settings = loaded({});
  EXPECT_EQ(settings.bits, 4);
  EXPECT_EQ(settings.minBytes, 32768U);
  EXPECT_EQ(settings.rounding, Rounding::Stochastic);
  EXPECT_EQ(settings.connectTimeout, 60);
  EXPECT_EQ(settings.peerTimeout, 30);
  EXPECT_EQ(settings.opTimeout, 0);
  EXPECT_EQ(settings.maxRanks, 64);
  EXPECT_TRUE(settings.checksum);
  EXPECT_EQ(settings.localRanks, 1);
  EXPECT_FALSE(settings.localRanksKnown);
  EXPECT_EQ(settings.worldRanks, 0);
  EXPECT_EQ(settings.mode, Mode::Auto);
  EXPECT_EQ(settings.comms, Comms::World);
}

// The awkward values of the field log for every knob; the second column lists the ones that are right for it.
const std::map<std::string, std::set<std::string>> kAwkward = {
    {"CGX_MODE", {}},
    {"CGX_COMMS", {}},
    {"CGX_INTRA", {}},
    {"CGX_GDR", {}},
    {"CGX_AFFINITY", {}},
    {"CGX_BITS", {}},
    {"CGX_STATS_FILE", {}},
    {"CGX_STATS_INTERVAL", {"9"}},
    {"CGX_STATS_FORMAT", {}},
    {"CGX_COMPRESSION_QUANTIZATION_BITS", {}},
    {"CGX_ROUNDING", {}},
    {"CGX_MIN_BYTES", {"9"}},
    {"CGX_COMPRESSION_MINIMAL_SIZE", {"9"}},
    {"CGX_COMPRESSION_BUCKET_SIZE", {"9"}},
    {"CGX_SEED", {"9"}},
    {"CGX_SIMD", {}},
    {"CGX_THREADS", {"9"}},
    {"CGX_STAGING", {}},
    {"CGX_BLOCK_ELEMENTS", {}},
    {"CGX_ONE_PHASE_BYTES", {"9"}},
    {"CGX_MAX_RANKS", {"9"}},
    {"CGX_CONNECT_TIMEOUT", {"9"}},
    {"CGX_PEER_TIMEOUT", {"9"}},
    {"CGX_OP_TIMEOUT", {"9"}},
    {"CGX_LATE_WARN", {"9"}},
    {"CGX_SOCKET_IFNAME", {"abc", "-1", "9", "4x", "1e9", "0x4", "+4", kUnicode}},  // each could be an interface's name
    {"CGX_SOCKET_FAMILY", {}},
    {"CGX_PORT_RANGE", {}},
    {"CGX_STREAMS", {"9"}},
    {"CGX_PROGRESS_THREADS", {"9"}},
    {"CGX_CHECKSUM", {}},
    {"CGX_KEEPALIVE", {"9"}},
    {"CGX_LINK_SPEED", {"9"}},
    {"CGX_ABORT_ON_ERROR", {}},
};

TEST(Settings, EveryKnobRejectsAwkwardValuesNamingVariableValueAndForm) {
  for (const auto& [name, good] : kAwkward) {
    for (const std::string value : {" 4 ", "abc", "-1", "9", "4x", "1e9", kUnicode, "0x4", "+4", "4 ", "\t4"}) {
      if (good.contains(value)) {
        Settings settings;
        EXPECT_TRUE(load(settings, {{name, value}}).ok()) << name << "=" << value;
        continue;
      }
      const std::string why = rejected({{name, value}});
      EXPECT_NE(why.find(name), std::string::npos) << why;
      if (value != "\t4") {
        EXPECT_NE(why.find('"' + value + '"'), std::string::npos) << why;
      }
      EXPECT_NE(why.find("accepted: "), std::string::npos) << why;
    }
  }
}

TEST(Settings, AnEmptyVariableCountsAsUnset) {
  Environment environment;
  for (const auto& [name, good] : kAwkward) environment[name] = "";
  EXPECT_EQ(loaded(environment).bits, 4);
  for (const auto& [name, row] : rowsOf(environment)) EXPECT_EQ(row.value, row.fallback) << name;
}

TEST(Settings, EveryRowIsCoveredByTheAwkwardValues) {
  for (const auto& [name, row] : rowsOf({})) {
    EXPECT_TRUE(kAwkward.contains(name)) << name;
    if (row.alias.starts_with("CGX_")) {
      EXPECT_TRUE(kAwkward.contains(row.alias)) << row.alias;
    }
  }
}

TEST(Settings, BitsAreOneToEightOrThirtyTwo) {
  for (int bits = 0; bits <= 40; ++bits) {
    Settings settings;
    const bool good = (bits >= 1 && bits <= 8) || bits == 32;
    EXPECT_EQ(load(settings, {{"CGX_BITS", std::to_string(bits)}}).ok(), good) << bits;
    EXPECT_EQ(settings.bits, good ? bits : 4);
  }
}

TEST(Settings, BytesTakeUnitsOfTheirPowersOf1024) {
  const std::map<std::string, std::size_t> sizes = {
      {"0", 0},       {"off", 0},      {"1", 1},           {"64K", 65536},
      {"64k", 65536}, {"1M", 1048576}, {"2G", 2147483648}, {"1024G", std::size_t{1} << 40}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(loaded({{"CGX_MIN_BYTES", text}}).minBytes, bytes) << text;
  for (const char* text :
       {"K", "1KB", "1.5M", "1T", "1025G", "99999999999G", "18446744073709551616", "-1", "64 K", "M1"})
    rejected({{"CGX_MIN_BYTES", text}});
}

TEST(Settings, SizeKnobsTakeZeroSmallHugeAndOff) {
  for (const char* name : {"CGX_MIN_BYTES", "CGX_ONE_PHASE_BYTES"}) {
    for (const char* text : {"0", "off", "1", "4096", "1G"}) {
      Settings settings;
      EXPECT_TRUE(load(settings, {{name, text}}).ok()) << name << "=" << text;
    }
    rejected({{name, "-1"}});
    rejected({{name, "99999999999999999999"}});
  }
}

TEST(Settings, SecondsAreDecimals) {
  EXPECT_EQ(loaded({{"CGX_PEER_TIMEOUT", "2.5"}}).peerTimeout, 2.5);
  EXPECT_EQ(loaded({{"CGX_OP_TIMEOUT", "0"}}).opTimeout, 0);
  EXPECT_EQ(loaded({{"CGX_OP_TIMEOUT", "off"}}).opTimeout, 0);
  for (const char* text : {"0", "off", "inf", "nan", "1e3", "-2.5", "1,5", "2s", ".5", "1.2.3", "90000", "0.01"})
    rejected({{"CGX_PEER_TIMEOUT", text}});
}

TEST(Settings, WordsAreTakenAsWritten) {
  EXPECT_EQ(loaded({{"CGX_ROUNDING", "nearest"}}).rounding, Rounding::Nearest);
  EXPECT_EQ(loaded({{"CGX_ROUNDING", "stochastic"}}).rounding, Rounding::Stochastic);
  EXPECT_EQ(loaded({{"CGX_SIMD", "avx2"}}).simd, "avx2");
  EXPECT_FALSE(loaded({{"CGX_CHECKSUM", "0"}}).checksum);
  EXPECT_TRUE(loaded({{"CGX_ABORT_ON_ERROR", "1"}}).abortOnError);
  EXPECT_NE(rejected({{"CGX_ROUNDING", "Nearest"}}).find("nearest, stochastic"), std::string::npos);
  rejected({{"CGX_CHECKSUM", "2"}});
  rejected({{"CGX_SIMD", "avx"}});
}

TEST(Settings, AutoIsZero) {
  const Settings settings = loaded({{"CGX_THREADS", "auto"}, {"CGX_STREAMS", "0"}, {"CGX_LINK_SPEED", "auto"}});
  EXPECT_EQ(settings.threads, 0);
  EXPECT_EQ(settings.streams, 0);
  EXPECT_EQ(settings.linkSpeedMbps, 0);
  EXPECT_EQ(loaded({{"CGX_LINK_SPEED", "25000"}}).linkSpeedMbps, 25000);
}

TEST(Settings, PortRangesAreOrderedPairs) {
  EXPECT_EQ(loaded({{"CGX_PORT_RANGE", "4000-4100"}}).portRange, "4000-4100");
  EXPECT_EQ(loaded({{"CGX_PORT_RANGE", "5-5"}}).portRange, "5-5");
  for (const char* text : {"4000", "4100-4000", "0-10", "1-65536", "1-", "-1", "1-2-3", "1 - 2"})
    rejected({{"CGX_PORT_RANGE", text}});
}

TEST(Settings, InterfaceListsFollowNcclsGrammar) {
  for (const char* text : {"eth0", "eth,ib", "^docker,lo", "=eth0", "^=eth0,eth1", "eth0:1,eth1:2", "eth0,"})
    EXPECT_EQ(loaded({{"CGX_SOCKET_IFNAME", text}}).ifname, text);
  for (const char* text : {"^", "=", ",", "eth 0", "eth0:x", "eth0:", "aNameThatIsTooLong", "a/b", "eth0:1:2"})
    rejected({{"CGX_SOCKET_IFNAME", text}});
}

TEST(Settings, TorchCgxNamesStillWork) {
  EXPECT_EQ(loaded({{"CGX_COMPRESSION_QUANTIZATION_BITS", "8"}}).bits, 8);
  EXPECT_EQ(loaded({{"CGX_COMPRESSION_MINIMAL_SIZE", "1000"}}).minBytes, 4000U) << "counted in elements of 4 bytes";
  EXPECT_EQ(loaded({{"CGX_COMPRESSION_BUCKET_SIZE", "512"}}).bits, 4);
  rejected({{"CGX_COMPRESSION_BUCKET_SIZE", "0"}});
  EXPECT_NE(rejected({{"CGX_COMPRESSION_MINIMAL_SIZE", "1000G"}}).find("divided by 4"), std::string::npos);
}

TEST(Settings, TheShortNameWinsButABadAliasIsStillAnError) {
  EXPECT_EQ(loaded({{"CGX_BITS", "2"}, {"CGX_COMPRESSION_QUANTIZATION_BITS", "8"}}).bits, 2);
  EXPECT_EQ(loaded({{"CGX_BITS", ""}, {"CGX_COMPRESSION_QUANTIZATION_BITS", "8"}}).bits, 8);
  rejected({{"CGX_BITS", "2"}, {"CGX_COMPRESSION_QUANTIZATION_BITS", "nine"}});
}

TEST(Settings, NcclsVariablesAreFallbacksAndNeverAnError) {
  EXPECT_EQ(loaded({{"NCCL_SOCKET_IFNAME", "ib0"}}).ifname, "ib0");
  EXPECT_EQ(loaded({{"NCCL_SOCKET_IFNAME", "ib0"}, {"CGX_SOCKET_IFNAME", "eth0"}}).ifname, "eth0");
  EXPECT_EQ(loaded({{"NCCL_SOCKET_FAMILY", "AF_INET6"}}).family, "AF_INET6");
  EXPECT_EQ(loaded({{"NCCL_SOCKET_FAMILY", "AF_WHATEVER"}}).family, "");
}

TEST(Settings, LoadingIsAllOrNothing) {
  Settings settings;
  settings.bits = 7;
  EXPECT_FALSE(load(settings, {{"CGX_BITS", "2"}, {"CGX_SEED", "5"}, {"CGX_STREAMS", "many"}}).ok());
  EXPECT_EQ(settings.bits, 7);
  EXPECT_EQ(settings.seed, 0U);
}

TEST(Settings, AllBadVariablesAreNamedAtOnce) {
  const std::string why = rejected({{"CGX_BITS", "9"}, {"CGX_STREAMS", "many"}});
  EXPECT_NE(why.find("CGX_BITS=\"9\""), std::string::npos) << why;
  EXPECT_NE(why.find("CGX_STREAMS=\"many\""), std::string::npos) << why;
  EXPECT_NE(why.find("1..8, 32"), std::string::npos) << why;
}

TEST(Settings, ErrorTextsCannotSpoilALog) {
  const std::string why = rejected({{"CGX_SIMD", "a\nb\x1b[31m" + std::string(10'000, 'x')}});
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_NE(why.find("\\x0a"), std::string::npos) << why;
  EXPECT_LT(why.size(), 300U);
}

TEST(Settings, LocalRanksComeFromTheLauncherAndNonsenseIsIgnored) {
  EXPECT_EQ(loaded({{"LOCAL_WORLD_SIZE", "8"}}).localRanks, 8);
  EXPECT_EQ(loaded({{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}).localRanks, 2);
  EXPECT_EQ(loaded({{"MPI_LOCALNRANKS", "3"}}).localRanks, 3);
  EXPECT_EQ(loaded({{"LOCAL_WORLD_SIZE", "junk"}, {"SLURM_NTASKS_PER_NODE", "4"}}).localRanks, 4);
  EXPECT_EQ(loaded({{"LOCAL_WORLD_SIZE", "0"}}).localRanks, 1);
  EXPECT_EQ(loaded({{"LOCAL_WORLD_SIZE", "-2"}}).localRanks, 1);
}

TEST(Settings, WorldRanksComeFromTheLauncherAndNonsenseIsIgnored) {
  EXPECT_EQ(loaded({{"WORLD_SIZE", "16"}}).worldRanks, 16);
  EXPECT_EQ(loaded({{"OMPI_COMM_WORLD_SIZE", "8"}}).worldRanks, 8);
  EXPECT_EQ(loaded({{"PMI_SIZE", "4"}}).worldRanks, 4);
  EXPECT_EQ(loaded({{"WORLD_SIZE", "16"}, {"OMPI_COMM_WORLD_SIZE", "2"}}).worldRanks, 16) << "torchrun under mpirun";
  EXPECT_EQ(loaded({{"WORLD_SIZE", "junk"}, {"PMI_SIZE", "4"}}).worldRanks, 4);
  for (const char* text : {"0", "-2", "", "4x", "99999999999"}) EXPECT_EQ(loaded({{"WORLD_SIZE", text}}).worldRanks, 0);
}

TEST(Settings, SlurmsWordCountsOnlyInsideAJobStep) {
  EXPECT_EQ(loaded({{"SLURM_NTASKS", "32"}}).worldRanks, 0);
  EXPECT_EQ(loaded({{"SLURM_NTASKS", "32"}, {"SLURM_STEP_ID", "0"}}).worldRanks, 32);
  EXPECT_EQ(loaded({{"SLURM_NTASKS", "32"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}).worldRanks, 8);
}

TEST(Settings, AGuessedNumberOfLocalRanksIsMarkedAsOne) {
  EXPECT_FALSE(loaded({{"LOCAL_WORLD_SIZE", "junk"}}).localRanksKnown);
  EXPECT_TRUE(loaded({{"LOCAL_WORLD_SIZE", "1"}}).localRanksKnown);
}

TEST(Settings, WhatIsCompressedIsAskedForInWords) {
  EXPECT_EQ(loaded({{"CGX_MODE", "off"}}).mode, Mode::Off);
  EXPECT_EQ(loaded({{"CGX_MODE", "always"}}).mode, Mode::Always);
  EXPECT_EQ(loaded({{"CGX_COMMS", "all"}}).comms, Comms::All);
  EXPECT_NE(rejected({{"CGX_MODE", "on"}}).find("auto, always, off"), std::string::npos);
  EXPECT_NE(rejected({{"CGX_COMMS", "some"}}).find("world, all"), std::string::npos);
}

TEST(Settings, RowsSayValueAndOrigin) {
  const Environment environment = {{"CGX_COMPRESSION_QUANTIZATION_BITS", "8"},
                                   {"CGX_MIN_BYTES", "65536"},
                                   {"NCCL_SOCKET_IFNAME", "ib0"},
                                   {"NCCL_SOCKET_FAMILY", "junk"},
                                   {"CGX_OP_TIMEOUT", "0.5"},
                                   {"CGX_CHECKSUM", "0"}};
  auto rows = rowsOf(environment);
  EXPECT_EQ(rows["CGX_BITS"].value, "8");
  EXPECT_EQ(rows["CGX_BITS"].origin, "CGX_COMPRESSION_QUANTIZATION_BITS");
  EXPECT_EQ(rows["CGX_BITS"].fallback, "4");
  EXPECT_EQ(rows["CGX_BITS"].accepts, "1..8, 32");
  EXPECT_EQ(rows["CGX_MIN_BYTES"].value, "64K");
  EXPECT_EQ(rows["CGX_MIN_BYTES"].origin, "CGX_MIN_BYTES");
  EXPECT_EQ(rows["CGX_SOCKET_IFNAME"].origin, "NCCL_SOCKET_IFNAME");
  EXPECT_EQ(rows["CGX_SOCKET_FAMILY"].origin, "default");
  EXPECT_EQ(rows["CGX_SOCKET_FAMILY"].value, "unset");
  EXPECT_EQ(rows["CGX_OP_TIMEOUT"].value, "0.5");
  EXPECT_EQ(rows["CGX_OP_TIMEOUT"].fallback, "off");
  EXPECT_EQ(rows["CGX_CHECKSUM"].value, "0");
  EXPECT_EQ(rows["CGX_STAGING"].value, "64M");
  EXPECT_EQ(rows["CGX_STAGING"].origin, "default");
  EXPECT_EQ(rows["CGX_COMPRESSION_BUCKET_SIZE"].value, "32");
}

TEST(Settings, WhatARowShowsCanBeSetAgain) {
  for (const auto& [name, row] : rowsOf({})) {
    if (row.fallback == "unset") continue;
    Settings settings;
    EXPECT_TRUE(load(settings, {{name, row.fallback}}).ok()) << name << "=" << row.fallback;
  }
}

TEST(Settings, UnknownVariablesAreNamedWithTheNearestKnownName) {
  const char* const environment[] = {
      "CGX_BIT=4",    "PATH=/bin",   "CGX_BITS=4",      "CGX_ONE_PHASE=1",
      "NCCL_CGX_X=1", "CGX_STREAM=", "CGX_GRADIENTS=x", "CGX_COMPRESSION_QUANTISATION_BITS=4",
      nullptr};
  const std::vector<std::string> unknown = unknownSettings(environment);
  ASSERT_EQ(unknown.size(), 4U);
  EXPECT_EQ(unknown[0], "CGX_BIT is no setting; the nearest is CGX_BITS");
  EXPECT_EQ(unknown[1], "CGX_ONE_PHASE is no setting; the nearest is CGX_ONE_PHASE_BYTES");
  EXPECT_EQ(unknown[2], "CGX_STREAM is no setting; the nearest is CGX_STREAMS");
  EXPECT_EQ(unknown[3],
            "CGX_COMPRESSION_QUANTISATION_BITS is no setting; the nearest is CGX_COMPRESSION_QUANTIZATION_BITS");
}

TEST(Settings, TheProcessEnvironmentIsReadOnce) {
  ::setenv("CGX_BITS", "3", 1);
  ::setenv("CGX_BITZ", "3", 1);
  Settings settings;
  std::vector<std::string> unknown;
  const Status status = loadEnvironment(settings, &unknown);
  ::unsetenv("CGX_BITS");
  ::unsetenv("CGX_BITZ");
  ASSERT_TRUE(status.ok()) << status.text();
  EXPECT_EQ(settings.bits, 3);
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].substr(0, 8), "CGX_BITZ");
}

TEST(Settings, TheReadmeTableHasEverySetting) {
  const std::string table = settingsMarkdown();
  for (const auto& [name, row] : rowsOf({})) EXPECT_NE(table.find("`" + name + "`"), std::string::npos) << name;
  EXPECT_NE(table.find("| 32K |"), std::string::npos) << table;
}

}  // namespace
}  // namespace cgx
