#include "ctl/plot_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ctl/plot.h"
#include "shared/base/file.h"
#include "shared/base/run_program.h"
#include "tests/support/temporary_directory.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSvg = "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>\n";

class PlotFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const path = ::getenv("PATH");
    path_before_ = path == nullptr ? "" : path;
  }
  void TearDown() override { ::setenv("PATH", path_before_.c_str(), 1); }
  // A program in place of rsvg-convert.
  void install(const std::string& script) {
    const std::string program = folder_ / "rsvg-convert";
    ASSERT_TRUE(write_file_atomically(default_file_system(), program, "#!/bin/sh\n" + script).ok());
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    ::setenv("PATH", (folder_.path() + ":" + path_before_).c_str(), 1);
  }
  std::string path(const char* name) const { return folder_ / name; }
  std::string content(const char* name) const { return *read_file(path(name), 1 << 20); }

  const test::TemporaryDirectory folder_;
  std::string path_before_;
};

TEST_F(PlotFileTest, WritesSvgUnchanged) {
  ASSERT_TRUE(write_plot(kSvg, path("a.svg")).ok());
  EXPECT_EQ(content("a.svg"), kSvg);
}

TEST_F(PlotFileTest, EmbedsImageInPageWithEscapedTitle) {
  ASSERT_TRUE(write_plot(kSvg, path("loss & <b>.html")).ok());
  const std::string page = content("loss & <b>.html");
  EXPECT_THAT(page, HasSubstr("<title>loss &amp; &lt;b></title>"));
  EXPECT_THAT(page, HasSubstr(kSvg));
  EXPECT_THAT(page, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST_F(PlotFileTest, ConvertsImageToPng) {
  install(
      "for option; do case $option in --output=*) file=${option#--output=};; esac; done\n"
      "(echo \"$@\"; cat) > \"$file\"\n");
  ASSERT_TRUE(write_plot(kSvg, path("a.png")).ok());
  EXPECT_THAT(content("a.png"), HasSubstr("--format=png"));
  EXPECT_THAT(content("a.png"), HasSubstr(kSvg));
}

// Another user who may write to the folder can leave links for names that can be guessed.
TEST_F(PlotFileTest, FollowsNoLinkInFolder) {
  install(
      "for option; do case $option in --output=*) file=${option#--output=};; esac; done\n"
      "cat > \"$file\"\n");
  ASSERT_TRUE(write_file_atomically(default_file_system(), path("victim"), "secret").ok());
  std::filesystem::create_symlink(path("victim"),
                                  path("a.png") + (".tmp" + std::to_string(::getpid())));
  std::filesystem::create_symlink(path("victim"), path("a.png"));
  ASSERT_TRUE(write_plot(kSvg, path("a.png")).ok());
  EXPECT_EQ(content("victim"), "secret");
  EXPECT_EQ(content("a.png"), kSvg);
}

// Skipped without the Debian package librsvg2-bin.
TEST_F(PlotFileTest, ConvertsPlotByRealProgram) {
  if (run_program({"rsvg-convert", "--version"}, "", std::chrono::seconds{60}, {}).code() ==
      StatusCode::kNotFound)
    GTEST_SKIP() << "no rsvg-convert on this machine";
  const std::string svg = render_svg({Curve{.name = "loss", .points = {{0, 2}, {9, 1}}}}, "steps");
  const Status written = write_plot(svg, path("a.png"));
  ASSERT_TRUE(written.ok()) << written.message();
  // The signature, and the width and height in the first chunk.
  const std::string png = content("a.png");
  ASSERT_GT(png.size(), 24u);
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(png.substr(12, 12), std::string("IHDR\0\0\x05\xa0\0\0\x03\x20", 12));
}

TEST_F(PlotFileTest, LeavesNoFileAfterFailedConversion) {
  install(
      "for option; do case $option in --output=*) file=${option#--output=};; esac; done\n"
      "touch \"$file\"; exit 3\n");
  EXPECT_THAT(write_plot(kSvg, path("a.png")).message(), HasSubstr("rsvg-convert: exit code 3"));
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
    files += entry.path().filename() == "rsvg-convert" ? 0 : 1;
  EXPECT_EQ(files, 0u);
}

TEST_F(PlotFileTest, NamesMissingProgramAndPackage) {
  ::setenv("PATH", folder_.path().c_str(), 1);
  const Status written = write_plot(kSvg, path("a.png"));
  EXPECT_EQ(written.code(), StatusCode::kNotFound);
  EXPECT_THAT(written.message(), HasSubstr("apt install librsvg2-bin"));
}

TEST_F(PlotFileTest, RejectsOtherEndings) {
  EXPECT_EQ(write_plot(kSvg, path("a.jpg")).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(plot_format_of("svg").has_value());
}

}  // namespace
}  // namespace stoker::ctl
