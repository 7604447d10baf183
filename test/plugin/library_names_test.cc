// Under which names each NCCL release finds the installed files: its search, written anew in support/nccl_names.h, run
// against what `cmake --install` puts into a folder; and that cgx run and cgx/activation.h say the same.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "cgx/activation.h"
#include "support/nccl_names.h"
#include "tools/launch.h"

namespace cgx::test {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

Lookup lookupIn(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  };
}

/// The newest table that a release asks for; of ours it gets that one.
std::string symbolOf(PluginKind kind, NcclVersion nccl) {
  struct Row {
    NcclVersion since;
    int version;
  };
  const auto newest = [&](std::initializer_list<Row> rows) {
    int version = 0;
    for (const Row& row : rows)
      if (nccl >= row.since) version = row.version;
    return std::to_string(version);
  };
  switch (kind) {
    case PluginKind::Net:
      return "ncclNetPlugin_v" + newest({{{2, 18, 0}, 6},
                                         {{2, 19, 0}, 7},
                                         {{2, 20, 0}, 8},
                                         {{2, 24, 0}, 9},
                                         {{2, 26, 0}, 10},
                                         {{2, 28, 0}, 11},
                                         {{2, 30, 0}, 12}});
    case PluginKind::Tuner:
      return "ncclTunerPlugin_v" + newest({{{2, 19, 0}, 1},
                                           {{2, 21, 0}, 2},
                                           {{2, 22, 0}, 3},
                                           {{2, 24, 0}, 4},
                                           {{2, 28, 0}, 5},
                                           {{2, 30, 0}, 6}});
    case PluginKind::Env:
      return "ncclEnvPlugin_v" + newest({{{2, 28, 7}, 1}, {{2, 30, 7}, 2}});
  }
  return {};
}

struct Question {
  PluginKind kind;
  NcclVersion nccl;
  Variables environment;

  std::string text() const {
    std::string text = "NCCL " + nccl.text() + " " + symbolOf(kind, nccl) + ":";
    for (const auto& [name, value] : environment) text += " " + name + "=" + value;
    return text;
  }
};

/// What `make install` makes, in a temporary folder.
class LibraryNames : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string name = fs::temp_directory_path() / "cgx-names-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = fs::canonical(name);
    const std::string install =
        "DESTDIR='" + root_ + "' " CGX_CMAKE " --install '" CGX_BUILD_DIR "' --prefix /usr/local";
    ASSERT_EQ(std::system((install + " >'" + root_ + "/log' 2>&1").c_str()), 0) << install;
  }
  static void TearDownTestSuite() { fs::remove_all(root_); }
  void TearDown() override { fs::remove(folder() + "/libnccl-net.so"); }

  static std::string folder() { return root_ + "/usr/local/lib"; }
  static std::string library() { return folder() + "/libnccl-net-cgx.so"; }
  /// As `make install-default` does.
  static void makeUsEverybodysNet() { fs::create_symlink("libnccl-net-cgx.so", folder() + "/libnccl-net.so"); }

  /// For each question the file that NCCL opens, in a process whose loader looks at `loaderPath` and whose working
  /// folder is the install tree's root.
  static std::vector<std::string> opened(const std::vector<Question>& questions, const std::string& loaderPath) {
    std::ofstream input(root_ + "/questions");
    for (const Question& question : questions) {
      input << symbolOf(question.kind, question.nccl);
      for (const std::string& name : namesTried(question.kind, question.nccl, lookupIn(question.environment)))
        input << '\t' << name;
      input << '\n';
    }
    input.close();
    const std::string command =
        "cd '" + root_ + "' && env -i LD_LIBRARY_PATH='" + loaderPath + "' " CGX_OPEN_FIRST " <questions";
    std::vector<std::string> files;
    std::FILE* answers = ::popen(command.c_str(), "r");
    std::array<char, 8192> line{};
    while (answers != nullptr && std::fgets(line.data(), line.size(), answers) != nullptr) {
      files.emplace_back(line.data());
      files.back().pop_back();
    }
    EXPECT_EQ(answers == nullptr ? -1 : ::pclose(answers), 0);
    EXPECT_EQ(files.size(), questions.size());
    files.resize(questions.size());
    return files;
  }

  using Finds = bool (*)(NcclVersion);
  struct Row {
    PluginKind kind;
    Variables environment;
    Finds finds;
  };

  /// Each row for each release, with the files on the loader's path.
  static void expect(const std::vector<Row>& rows) {
    std::vector<Question> questions;
    std::vector<bool> found;
    for (const Row& row : rows)
      for (const NcclVersion nccl : ncclReleases()) {
        questions.push_back({row.kind, nccl, row.environment});
        found.push_back(row.finds(nccl));
      }
    const std::vector<std::string> files = opened(questions, folder());
    for (std::size_t i = 0; i < questions.size(); ++i)
      EXPECT_EQ(files[i] == library(), found[i]) << questions[i].text() << " opens " << files[i];
  }

 private:
  inline static std::string root_;
};

constexpr auto kAlways = [](NcclVersion) { return true; };
constexpr auto kNever = [](NcclVersion) { return false; };
constexpr auto kNames = [](NcclVersion v) { return v >= NcclVersion{2, 21, 0}; };  // as they are
constexpr auto kPaths = [](NcclVersion v) { return v >= NcclVersion{2, 21, 0} && v != NcclVersion{2, 27, 3}; };
constexpr auto kLists = [](NcclVersion v) { return v >= NcclVersion{2, 27, 0}; };
constexpr auto kEnvs = [](NcclVersion v) { return v >= NcclVersion{2, 28, 7}; };

TEST_F(LibraryNames, TheNetPluginIsFoundUnderEachAcceptedSpelling) {
  const PluginKind net = PluginKind::Net;
  expect({{net, {{"NCCL_NET_PLUGIN", "cgx"}}, kAlways},
          {net, {{"NCCL_NET_PLUGIN", "libnccl-net-cgx.so"}}, kNames},
          {net, {{"NCCL_NET_PLUGIN", library()}}, kPaths},
          {net, {{"NCCL_NET_PLUGIN", "./usr/local/lib/libnccl-net-cgx.so"}}, kPaths},
          {net, {{"NCCL_NET_PLUGIN", "usr/local/lib/libnccl-net-cgx.so"}}, kPaths},
          {net, {{"NCCL_NET_PLUGIN", "cgx,other"}}, kLists},
          {net, {{"NCCL_NET_PLUGIN", "other,libnccl-net-cgx.so"}}, kLists},
          {net, {{"NCCL_NET_PLUGIN", ",cgx,"}}, kLists}});
}

TEST_F(LibraryNames, AJobThatDoesNotNameThePluginDoesNotGetIt) {
  const PluginKind net = PluginKind::Net;
  expect({{net, {}, kNever},
          {net, {{"NCCL_NET_PLUGIN", ""}}, kNever},
          {net, {{"NCCL_NET_PLUGIN", "none"}}, kNever},
          {net, {{"NCCL_NET_PLUGIN", "other"}}, kNever},
          {net, {{"NCCL_NET_PLUGIN", "CGX"}}, kNever},
          {PluginKind::Tuner, {}, kNever},
          {PluginKind::Tuner, {{"NCCL_NET_PLUGIN", "other"}}, kNever}});
}

TEST_F(LibraryNames, InstalledAsTheDefaultItIsFoundByJobsThatNameNone) {
  makeUsEverybodysNet();
  const PluginKind net = PluginKind::Net;
  expect({{net, {}, kAlways},
          {net, {{"NCCL_NET_PLUGIN", "cgx"}}, kAlways},
          {net,
           {{"NCCL_NET_PLUGIN", ""}},
           [](NcclVersion v) {
             return v < NcclVersion{2, 27, 0};
           }},
          {net, {{"NCCL_NET_PLUGIN", "none"}}, kNever},
          {PluginKind::Tuner, {}, kNames}});
}

TEST_F(LibraryNames, TheTunerIsFoundWithTheNetPluginAndUnderItsOwnNames) {
  const PluginKind tuner = PluginKind::Tuner;
  expect({{tuner, {{"NCCL_NET_PLUGIN", "cgx"}}, kNames},
          {tuner, {{"NCCL_NET_PLUGIN", library()}}, kPaths},
          {tuner, {{"NCCL_NET_PLUGIN", "cgx"}, {"NCCL_TUNER_PLUGIN", "other"}}, kNames},
          {tuner,
           {{"NCCL_NET_PLUGIN", "cgx"}, {"NCCL_TUNER_PLUGIN", "none"}},
           [](NcclVersion v) {
             return v >= NcclVersion{2, 21, 0} && v < NcclVersion{2, 28, 0};
           }},
          {tuner, {{"NCCL_TUNER_PLUGIN", "cgx"}}, kNames},
          {tuner, {{"NCCL_TUNER_PLUGIN", "libnccl-tuner-cgx.so"}}, kNames},
          {tuner, {{"NCCL_TUNER_PLUGIN", "libnccl-net-cgx.so"}}, kNames},
          {tuner, {{"NCCL_TUNER_PLUGIN", library()}}, kPaths}});
}

TEST_F(LibraryNames, TheEnvPluginIsFoundUnaskedAndUnderItsNames) {
  const PluginKind env = PluginKind::Env;
  expect({{env, {}, kEnvs},
          {env, {{"NCCL_ENV_PLUGIN", "cgx"}}, kEnvs},
          {env, {{"NCCL_ENV_PLUGIN", "libnccl-env.so"}}, kEnvs},
          {env, {{"NCCL_ENV_PLUGIN", "libnccl-net-cgx.so"}}, kEnvs},
          {env, {{"NCCL_ENV_PLUGIN", library()}}, kEnvs},
          {env, {{"NCCL_ENV_PLUGIN", "none"}}, kNever},
          {env, {{"NCCL_ENV_PLUGIN", "other"}}, kNever}});
}

TEST_F(LibraryNames, WhatActivationCallsUnderstoodIsWhatIsFound) {
  std::vector<Question> questions;
  for (const NcclVersion nccl : ncclReleases())
    for (const std::string& value :
         {std::string("cgx"), std::string("libnccl-net-cgx.so"), library(), "other," + library(), library() + ",other",
          std::string("cgx,other"), std::string("other,cgx"), std::string("other"), std::string("none"),
          std::string("CGX"), std::string("./usr/local/lib/libnccl-net-cgx.so")})
      questions.push_back({PluginKind::Net, nccl, {{"NCCL_NET_PLUGIN", value}}});
  const std::vector<std::string> files = opened(questions, folder());
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const char* const value = questions[i].environment.at("NCCL_NET_PLUGIN").c_str();
    EXPECT_EQ(activation::understood(value, library(), questions[i].nccl), files[i] == library())
        << questions[i].text() << " opens " << files[i];
    EXPECT_TRUE(activation::namesUs(value, library()) || files[i] != library()) << "a job that has us is not told so";
  }
}

/// The environment that `cgx run` makes of an empty one.
Variables launched(const std::vector<NcclVersion>& versions, const std::string& library) {
  tool::LaunchFacts facts;
  for (const NcclVersion version : versions) facts.found.push_back({"/x/libnccl.so.2", version, "somewhere"});
  facts.lookup = [](const char*) -> const char* { return nullptr; };
  facts.library = library;
  Variables environment;
  for (const auto& [name, value] : tool::planLaunch(facts).set) environment[name] = value;
  return environment;
}

TEST_F(LibraryNames, WhatCgxRunSetsLetsEachReleaseFindNetAndTuner) {
  std::map<std::string, std::vector<Question>> byLoaderPath;
  const auto ask = [&](const std::vector<NcclVersion>& found, NcclVersion loaded) {
    const Variables environment = launched(found, library());
    const auto path = environment.find("LD_LIBRARY_PATH");
    std::vector<Question>& questions = byLoaderPath[path == environment.end() ? "" : path->second];
    questions.push_back({PluginKind::Net, loaded, environment});
    if (loaded >= NcclVersion{2, 21, 0}) questions.push_back({PluginKind::Tuner, loaded, environment});
  };
  for (const NcclVersion loaded : ncclReleases()) {
    ask({}, loaded);  // not found by cgx run, so any may be loaded
    ask({loaded}, loaded);
    for (const NcclVersion other : ncclReleases()) ask({other, loaded}, loaded);
  }
  EXPECT_EQ(byLoaderPath.size(), 2U) << "by path, and by the short name";
  for (const auto& [loaderPath, questions] : byLoaderPath) {
    const std::vector<std::string> files = opened(questions, loaderPath);
    for (std::size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(files[i], library()) << questions[i].text();
  }
}

TEST(NcclNames, AreTriedInNcclsOrder) {
  const auto net = [](NcclVersion nccl, const char* value) {
    const Variables environment{{"NCCL_NET_PLUGIN", value}};
    std::string text;
    for (const std::string& name : namesTried(PluginKind::Net, nccl, lookupIn(environment))) text += name + ";";
    return text;
  };
  EXPECT_EQ(net({2, 20, 5}, "x"), "libnccl-net-x.so;");
  EXPECT_EQ(net({2, 20, 5}, "/p/libx.so"), "libnccl-net-/p/libx.so.so;");
  EXPECT_EQ(net({2, 26, 6}, "x"), "x;libnccl-net-x.so;");
  EXPECT_EQ(net({2, 26, 6}, "/p/libx.so"), "/p/libx.so;libnccl-net-/p/libx.so.so;");
  EXPECT_EQ(net({2, 27, 3}, "x"), "libnccl-net-x.so;");
  EXPECT_EQ(net({2, 27, 3}, "libx.so"), "libx.so;");
  EXPECT_EQ(net({2, 27, 3}, "/p/libx.so"), "libnccl-net-/p/libx.so.so;");
  EXPECT_EQ(net({2, 27, 5}, "x,/p/libx.so"), "x;libnccl-net-x.so;/p/libx.so;");
  EXPECT_EQ(net({2, 27, 7}, "none"), "none;libnccl-net-none.so;");
  EXPECT_EQ(net({2, 28, 3}, "None"), "");
  EXPECT_EQ(net({2, 30, 7}, "static"), ";libnccl-net-static.so;") << "the program itself";
}

}  // namespace
}  // namespace cgx::test
