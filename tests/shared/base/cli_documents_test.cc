#include "shared/base/cli_documents.h"

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/cli_options.h"
#include "shared/base/man_page.h"

namespace stoker {
namespace {

using testing::HasSubstr;
using testing::Not;

// A program with options of each kind and a command.
class CliDocumentsTest : public testing::Test {
 protected:
  CliDocumentsTest() {
    app_.footer(
        "Examples:\n"
        "  mill --grind 3         grind 3 times\n"
        "  mill --grind 3 --speed slow\n"
        "                         the same, slowly\n\n"
        "A note\nof two lines.\n\nExit codes: 0 success,\n64 usage error.");
    auto* const grind = app_.add_option("-g,--grind", count_, "How often");
    grind->type_name("N")->required()->check(CLI::Range(1, 9));
    app_.add_option("--speed", text_, "Speed of the stones")
        ->type_name("SPEED")
        ->check(CLI::IsMember({"slow", "fast"}))
        ->needs(grind);
    app_.add_option("--input", text_, "Grain")->type_name("FILE");
    app_.add_option("--set", text_, "Override a key")->type_name("KEY=VALUE");
    app_.add_flag("--dry", flag_, "Without water")->group("Water");
    app_.add_option("--secret", text_, "Not listed")->group("");
    CLI::App* const weigh = app_.add_subcommand("weigh", "Weigh the flour");
    weigh->add_option("SACK", text_, "Sack, e.g. '.5'")->required();
    weigh->add_flag("--exact", flag_, "To the gram");
  }

  CLI::App app_{"mill grinds grain.", "mill"};
  int count_ = 0;
  std::string text_;
  bool flag_ = false;
};

TEST_F(CliDocumentsTest, ManPageDescribesOptionsAndCommands) {
  const std::string page = man_page(app_, 6);
  for (const char* const text :
       {".TH mill 6 ", ".SH NAME\nmill \\- grinds grain\n",
        "\n\\fBmill \\-g, \\-\\-grind N [OPTIONS] COMMAND",
        "\\fB\\-g, \\-\\-grind N\\fR\n\\&How often. From 1 to 9. Required.\n",
        "\n\\&Speed of the stones. Only with \\-\\-grind.\n",
        ".SS \"Water\"\n.TP\n\\fB\\-\\-dry\\fR\n",
        ".SS \"weigh [OPTIONS] SACK\"\n.PP\n\\&Weigh the flour.\n",
        "\\&Sack, e.g. \\(aq.5\\(aq.\n"})
    EXPECT_THAT(page, HasSubstr(text));
  EXPECT_THAT(page, Not(HasSubstr("secret")));
}

TEST_F(CliDocumentsTest, ManPageHasSectionsOfFooter) {
  const std::string page = man_page(app_, 6);
  for (const char* const text :
       {".SH \"EXAMPLES\"\n.TP\n\\fBmill \\-\\-grind 3\\fR\n\\&grind 3 times\n",
        "\n\\fBmill \\-\\-grind 3 \\-\\-speed slow\\fR\n\\&the same, slowly\n",
        ".SH \"NOTES\"\n.PP\n\\&A note of two lines.\n",
        ".SH \"EXIT STATUS\"\n.PP\n\\&0 success, 64 usage error.\n"})
    EXPECT_THAT(page, HasSubstr(text));
}

TEST_F(CliDocumentsTest, ReportsUnknownOptionBeforeMissingOne) {
  const auto error_of = [this](std::vector<const char*> words) -> std::string {
    words.insert(words.begin(), "mill");
    try {
      parse_options(app_, static_cast<int>(words.size()), words.data());
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({"--grnd", "3"}), HasSubstr("--grnd"));
  EXPECT_THAT(error_of({"--grind", "3", "weigh", "--exatc"}), HasSubstr("--exatc"));
  EXPECT_THAT(error_of({"--dry"}), HasSubstr("--grind is required"));
  EXPECT_THAT(error_of({"--grind", "3", "weigh"}), HasSubstr("SACK is required"));
  EXPECT_EQ(error_of({"--grind", "3", "weigh", "7"}), "");
}

TEST_F(CliDocumentsTest, CompletionHasOptionsWordsAndKeys) {
  const std::string script = bash_completion(
      app_, {{.key = "stone.kind", .words = {"basalt", "granite"}}, {.key = "grain", .words = {}}});
  for (const char* const text :
       {"complete -o bashdefault -o default -F _mill mill\n", "candidates='slow fast'",
        "*:--input) return ;;", "weigh) options+=' --exact' ;;", "stone.kind=*)",
        "'basalt granite'", "\nstone.kind=\ngrain=\n"})
    EXPECT_THAT(script, HasSubstr(text));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

TEST_F(CliDocumentsTest, ZshCompletionHasOptionsWordsAndKeys) {
  const std::string script = zsh_completion(
      app_, {{.key = "stone.kind", .words = {"basalt", "granite"}}, {.key = "grain", .words = {}}});
  for (const char* const text : {"#compdef mill\n", ":(slow fast)'", "weigh) _arguments",
                                 "--exact[", "grain=", "stone.kind=) compadd -- basalt granite ;;"})
    EXPECT_THAT(script, HasSubstr(text));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

TEST_F(CliDocumentsTest, FishCompletionHasOptionsWordsAndKeys) {
  const std::string script = fish_completion(
      app_, {{.key = "stone.kind", .words = {"basalt", "granite"}}, {.key = "grain", .words = {}}});
  for (const char* const text : {"complete -c mill -f\n", " -x -a 'slow fast'",
                                 "-n '__fish_seen_subcommand_from weigh' -l exact",
                                 "stone.kind=basalt stone.kind=granite grain="})
    EXPECT_THAT(script, HasSubstr(text));
  EXPECT_THAT(script, Not(HasSubstr("secret")));
}

TEST_F(CliDocumentsTest, DocumentOptionNeedsNoOtherOption) {
  add_document_option(app_, 6);
  try {
    app_.parse("--print-document man");
    FAIL() << "did not exit";
  } catch (const CLI::CallForVersion& answer) {
    EXPECT_EQ(answer.what(), man_page(app_, 6));
    EXPECT_EQ(answer.get_exit_code(), 0);
  }
  EXPECT_THROW(app_.parse("--print-document html"), CLI::ValidationError);
}

TEST(ManPageTest, EscapesRequestsAndQuotes) {
  ManPage page("a-b", 5, "x");
  page.add_section("\"s\"");
  page.add_paragraph(".PP \\fB~^`'\n-");
  const std::string text = page.text();
  EXPECT_THAT(text, HasSubstr("\n.SH \"\\(dqs\\(dq\"\n"));
  EXPECT_THAT(text, HasSubstr("\n\\&.PP \\efB\\(ti\\(ha\\(ga\\(aq \\-\n"));
}

}  // namespace
}  // namespace stoker
