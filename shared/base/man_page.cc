#include "shared/base/man_page.h"

namespace stoker {
namespace {

// Escapes what troff interprets. Without the escapes, hyphens and quotes of commands and settings
// would become typographic characters, which a shell does not understand.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '\\':
        out += "\\e";
        break;
      case '-':
        out += "\\-";
        break;
      case '\'':
        out += "\\(aq";
        break;
      case '"':
        out += "\\(dq";
        break;
      case '`':
        out += "\\(ga";
        break;
      case '^':
        out += "\\(ha";
        break;
      case '~':
        out += "\\(ti";
        break;
      case '\n':
        out += ' ';
        break;
      default:
        out += c;
    }
  }
  return out;
}

// A line of text, not a request: those start with '.'.
std::string line_of(std::string_view text) { return "\\&" + escape(text) + '\n'; }

std::string bold(std::string_view text) { return "\\fB" + escape(text) + "\\fR\n"; }

std::string quoted(std::string_view text) { return '"' + escape(text) + "\"\n"; }

}  // namespace

ManPage::ManPage(std::string_view name, int section, std::string_view summary)
    : page_(std::string(name) + '(' + std::to_string(section) + ')') {
  // No date, so that equal sources give equal pages; neither hyphenation nor justification.
  out_ = ".TH " + escape(name) + ' ' + std::to_string(section) +
         " \"\" \"stoker " STOKER_VERSION "\" stoker\n.nh\n.ad l\n.SH NAME\n" + escape(name) +
         " \\- " + escape(summary) + '\n';
}

void ManPage::add_section(std::string_view title) { out_ += ".SH " + quoted(title); }

void ManPage::add_subsection(std::string_view title) { out_ += ".SS " + quoted(title); }

void ManPage::add_paragraph(std::string_view text) { out_ += ".PP\n" + line_of(text); }

void ManPage::add_command(std::string_view line) { out_ += ".PP\n" + bold(line); }

void ManPage::add_item(std::string_view term, std::string_view text) {
  out_ += ".TP\n" + bold(term) + line_of(text);
}

std::string ManPage::text() const {
  std::string others;
  for (const std::string page :
       {"stokerd(8)", "stoker-eval(1)", "stokerctl(1)", "stoker-web(1)", "stoker.yaml(5)"})
    if (page != page_) others += (others.empty() ? "" : ", ") + page;
  return out_ + ".SH \"SEE ALSO\"\n" + line_of(others);
}

}  // namespace stoker
