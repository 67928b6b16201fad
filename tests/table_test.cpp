#include "bench/base/table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "bench/base/section.h"
#include "bench/base/text.h"
#include "model/error.h"

namespace stepladder {
namespace {

TEST(Table, AlignsColumnsToTheirWidestCell) {
  Table table({{.title = "rung", .align = Align::left}, {"ms"}, {.title = "status", .align = Align::left}});
  table.add({"00_fp32_baseline", "369.8", "ok"});
  table.add({"x", "-", "oom: wants 90 GiB"});
  EXPECT_EQ(table.terminal(false, Table::kWidth),
            "rung                 ms  status\n"
            "----------------  -----  -----------------\n"
            "00_fp32_baseline  369.8  ok\n"
            "x                     -  oom: wants 90 GiB\n");
}

TEST(Table, LeavesOutWhatIsSpareWhereThereIsNoRoom) {
  Table table({{.title = "rung", .align = Align::left},
               {.title = "loss", .priority = 1},
               {.title = "ms", .priority = 2},
               {.title = "status", .align = Align::left}});
  table.add({std::string(60, 'x'), "6.5", std::string(28, '1'), "crash: " + std::string(90, 'y')});
  const auto columns = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  EXPECT_EQ(columns(table.terminal(false, Table::kWidth)).find("loss"), std::string::npos);
  EXPECT_NE(columns(table.terminal(false, Table::kWidth)).find("ms"), std::string::npos);
  EXPECT_LE(columns(table.terminal(false, Table::kWidth)).size(), Table::kWidth);
  EXPECT_NE(table.terminal(false, Table::kWidth).find("--wide also shows: loss"), std::string::npos);
  EXPECT_NE(columns(table.terminal(/*wide=*/true)).find("loss"), std::string::npos);
  EXPECT_NE(table.markdown().find("loss"), std::string::npos);
}

TEST(Table, ReasonsWithoutRoomStandBelow) {
  Table table({{.title = "rung", .align = Align::left},
               {"ms"},
               {.title = "status", .align = Align::left, .reasons = true}});
  table.add({"00", std::string(80, '1'), "crash: " + std::string(90, 'y')});
  table.add({"01", "2", "oom: 3 B"});
  const std::string text = table.terminal(false, Table::kWidth);
  EXPECT_NE(text.find("  crash\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  oom: 3 B\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\n00: crash: " + std::string(90, 'y') + "\n"), std::string::npos) << text;
  EXPECT_NE(table.terminal(/*wide=*/true).find("1  crash: yyy"), std::string::npos);
  EXPECT_NE(table.markdown().find("| crash: yyy"), std::string::npos);
}

TEST(Table, ASpareTextAtTheEndIsLeftOutWhole) {
  Table table(
      {{.title = "rung", .align = Align::left}, {.title = "changes", .align = Align::left, .priority = 1}});
  table.add({"00", std::string(100, 'x')});
  EXPECT_EQ(table.terminal(false, Table::kWidth), "rung\n----\n00\n--wide also shows: changes\n");
}

TEST(Table, AColumnThatSaysNothingIsLeftOutBeforeOthers) {
  Table table({{.title = "rung", .align = Align::left},
               {"x baseline"},
               {.title = "x PyTorch", .priority = 1},
               {"ms"}});
  table.add({"00", "-", "1.5", "2"});
  EXPECT_EQ(table.terminal(false, 20),
            "rung  x PyTorch  ms\n----  ---------  --\n00          1.5   2\n"
            "--wide also shows: x baseline\n");
  EXPECT_EQ(table.terminal(false, 100).substr(0, 16), "rung  x baseline") << "where there is room it stays";
}

TEST(Table, TheRuleOfANumberAtTheEndIsAsWideAsTheNumber) {
  Table table({{.title = "rung", .align = Align::left}, {"a header that is longer than others"}});
  table.add({"00", "1"});
  const std::string text = table.terminal(false, Table::kWidth), rule = text.substr(text.find('\n') + 1);
  EXPECT_TRUE(rule.starts_with("----  " + std::string(35, '-') + "\n")) << text;
}

Table with_intervals() {
  Table table({{.title = "rung", .align = Align::left},
               {.title = "median", .unit = "ms", .meaning = "of a step"},
               {.title = "x baseline", .priority = 4}},
              "Rungs");
  table.add({Cell("02_tf32", "", "", "GEMMs on TF32"), "17.0",
             Cell::of(Estimate{1.5, Interval{1.25, 1.75}, 6}, 2, "against 00")});
  table.add({"a,b \"c\"", kNone, Cell::of(std::nullopt, 2)});
  return table;
}

TEST(Table, OneCellIsTheSameForEveryReader) {
  const Table table = with_intervals();
  EXPECT_NE(table.terminal().find("02_tf32       17.0  1.50 (1.25 to 1.75)\n"), std::string::npos)
      << table.terminal();
  EXPECT_NE(table.markdown().find("| 02_tf32 | 17.0 | 1.50 (1.25 to 1.75) |"), std::string::npos);
  EXPECT_NE(table.markdown().find("| rung | median ms | x baseline |"), std::string::npos);
  const auto json = table.json();
  EXPECT_EQ(json["heading"], "Rungs");
  EXPECT_EQ(json["columns"][1], (nlohmann::ordered_json{{"title", "median"},
                                                        {"unit", "ms"},
                                                        {"align", "right"},
                                                        {"priority", 0},
                                                        {"reasons", false},
                                                        {"meaning", "of a step"}}));
  EXPECT_EQ(json["rows"][0][0]["more"], "GEMMs on TF32");
  EXPECT_EQ(json["rows"][0][1], "17.0");
  EXPECT_EQ(json["rows"][0][2]["text"], "1.50");
  EXPECT_EQ(json["rows"][0][2]["between"], "1.25 to 1.75");
  EXPECT_EQ(json["rows"][0][2]["hint"], "against 00");
}

TEST(Table, MarkdownMayLeaveOutIntervalsAndColumnsByTheirPriority) {
  EXPECT_NE(with_intervals().markdown(4).find("| x baseline |"), std::string::npos);
  EXPECT_NE(with_intervals().markdown(4).find("| 02_tf32 | 17.0 | 1.50 |"), std::string::npos)
      << "no interval";
  EXPECT_EQ(with_intervals().markdown(5).substr(0, 23), "| rung | median ms |\n| ");
}

TEST(Table, CsvHasTheTextOfEachCellQuotedWhereItHasTo) {
  Table table({{"name"}, {"reason"}});
  table.add({"a,b", "c \"d\"\n" + std::string(500, 'x')});
  EXPECT_EQ(table.csv(), "name,reason\n\"a,b\",\"c \"\"d\"\"?" + std::string(500, 'x') + "\"\n") << "whole";
}

TEST(Section, HoldsSentencesTablesAndNotes) {
  Section section{.heading = "ladder", .sentences = {"Fastest: 02_tf32."}, .tables = {with_intervals()}};
  section.notes = {{"Unfinished.", true}, {"Step_time_: host clock."}};
  const std::string terminal = section.terminal(true), markdown = section.markdown(2);
  EXPECT_TRUE(terminal.starts_with("ladder\nFastest: 02_tf32.\n\nRungs\n\nrung")) << terminal;
  EXPECT_TRUE(terminal.ends_with("\n\nmedian ms: of a step.\nUnfinished.\nStep_time_: host clock.\n"))
      << terminal;
  EXPECT_TRUE(markdown.starts_with("## ladder\n\nFastest: 02_tf32.\n\n### Rungs\n\n| rung |")) << markdown;
  EXPECT_TRUE(markdown.ends_with("\n- Unfinished.\n- Step_time\\_: host clock.\n")) << markdown;
  EXPECT_EQ(section.json()["notes"][0]["warning"], true);
}

TEST(Section, TellsTheMeaningOfEachColumnThatIsShownOnce) {
  Table table({{.title = "rung", .align = Align::left},
               {.title = "median", .unit = "ms", .meaning = "of a step"},
               {.title = "x baseline", .priority = 1, .meaning = "times as fast"}});
  table.add({std::string(80, 'r'), "17.0", "1.50"});
  const Section section{.tables = {table, table}};
  EXPECT_EQ(section.legend(), "median ms: of a step. x baseline: times as fast.");
  EXPECT_EQ(section.legend(false), "median ms: of a step.") << "there is no room for the other";
  EXPECT_EQ(section.json()["legend"], section.legend());
}

TEST(Text, NumbersAtTheEdgesStayReadable) {
  EXPECT_EQ(fixed(-0.0001, 1), "0.0");
  EXPECT_EQ(fixed(-0.06, 1), "-0.1");
  EXPECT_EQ(percent_of(-1e-6), "+0.00");
  EXPECT_EQ(rounded(1234567.8), "1,234,568");
  EXPECT_EQ(rounded(1e300), "1.00e+300");
  EXPECT_EQ(fixed(1e308, 2), "1.00e+308");
}

TEST(Text, IsFoldedAtSpaces) {
  EXPECT_EQ(folded("one two three", 7), "one two\nthree");
  EXPECT_EQ(folded("", 7), "");
}

TEST(Table, CountsCharactersNotBytes) {
  Table table({{"a"}, {"b"}});
  table.add({"\u00b5s", "1"});
  table.add({"abc", "2"});
  EXPECT_EQ(table.terminal(false, Table::kWidth), "  a  b\n---  -\n \u00b5s  1\nabc  2\n");
}

TEST(Table, MarkdownEscapesWhatIsMarkup) {
  Table table({{.title = "rung", .align = Align::left}, {"status"}});
  table.add({"a|b", "crash: <b>*`x`*</b> [l](u)"});
  table.add({"@someone", "ok"});
  table.add({"00_fp32", "_x_ ~~y~~ #12 &lt;"});
  EXPECT_EQ(table.markdown(),
            "| rung | status |\n"
            "| :--- | ---: |\n"
            "| a\\|b | crash: &lt;b>\\*\\`x\\`\\*&lt;/b> \\[l\\](u) |\n"
            "| &#64;someone | ok |\n"
            "| 00_fp32 | \\_x\\_ \\~\\~y\\~\\~ \\#12 &amp;lt; |\n");
}

TEST(Table, CellsCannotDriveTheTerminal) {
  Table table({{.title = "a", .align = Align::left}});
  table.add({"\033[2Jgone\nnext"});
  table.add({std::string(1000, 'x')});
  const std::string text = table.terminal(false, Table::kWidth);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_NE(text.find("?[2Jgone?next\n"), std::string::npos);
  EXPECT_EQ(text.find(std::string(401, 'x')), std::string::npos);
}

TEST(Text, PrintableKeepsWholeCharactersAndNoControls) {
  EXPECT_EQ(printable("a\xc2\x9b[31m", 20), "a??[31m");  // U+009B acts as ESC [ on a terminal
  EXPECT_EQ(printable("a\x9b[31m\xff\xc3", 20), "a?[31m??") << "no UTF-8";
  EXPECT_EQ(printable("\xe0\x80\x80 \xed\xa0\x80 \xf4\x90\x80\x80 \xf0\x80\x80\x80", 20), "??? ??? ???? ????")
      << "too long, a surrogate, beyond Unicode";
  EXPECT_EQ(printable("a\u202eb\u2028", 20), "a???b???") << "turns the text, ends the line";
  EXPECT_EQ(printable("a\u061cb", 20), "a??b") << "turns the text";
  EXPECT_EQ(printable("\u00b5s \u2264 \U0001f600", 20), "\u00b5s \u2264 \U0001f600");
  EXPECT_EQ(printable("\xc2\xa0\xc3\x9b", 20), "\xc2\xa0\xc3\x9b");
  EXPECT_EQ(printable("a\xe2\x82\xac\xe2\x82\xac", 3), "a...");
  EXPECT_EQ(printable("a\xe2\x82\xac\xe2\x82\xac", 4), "a\xe2\x82\xac...");
}

TEST(Text, BoxesCannotDriveTheTerminal) {
  const std::string text = box({{"data", "a\033[31m\nb"}, {"val-data", std::string(5000, 'x')}}, SIZE_MAX);
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_LT(text.size(), 4 * 500U);
}

TEST(Text, BoxesCountCharactersNotBytes) {
  EXPECT_EQ(box({{"data", "/tmp/j\u00fcrgen"}, {"vocab", "here"}}, SIZE_MAX),
            "+-------+-------------+\n"
            "| data  | /tmp/j\u00fcrgen |\n"
            "| vocab | here        |\n"
            "+-------+-------------+\n");
}

TEST(Text, BoxesGoOnInTheNextLineWhereThereIsNoRoom) {
  const std::string path = "/tmp/j\u00fcrgen/" + std::string(15, 'x');
  EXPECT_EQ(box({{"BLAS", "OpenBLAS 0.3.21 of some kind"}, {}, {"data", path}, {"seq", "64"}}, 32),
            "+------+-----------------------+\n"
            "| BLAS | OpenBLAS 0.3.21 of    |\n"
            "|      | some kind             |\n"
            "+------+-----------------------+\n"
            "| data | /tmp/j\u00fcrgen/xxxxxxxxx |\n"
            "|      | xxxxxx                |\n"
            "| seq  | 64                    |\n"
            "+------+-----------------------+\n");
}

TEST(Table, RefusesARowOfAnotherSize) {
  Table table({{"a"}, {"b"}});
  EXPECT_THROW(table.add({"1"}), std::invalid_argument);
  EXPECT_THROW(table.add({"1", "2", "3"}), std::invalid_argument);
}

TEST(Table, HasAnEstimateWithItsIntervalInACell) {
  const Estimate known{1.0249, Interval{1.0051, 1.0352}, 6};
  EXPECT_EQ(text_of(known, 2), "1.02 (1.01 to 1.04)");
  EXPECT_EQ(interval_text(known, 3), "1.005 to 1.035");
  EXPECT_EQ(text_of(scaled(known, 1000)),
            cat(sized(1024.9), " (", sized(1005.1), " to ", sized(1035.2), ")"));
  EXPECT_EQ(text_of(Estimate{1.0249, {}, 1}, 2), "1.02");
  EXPECT_EQ(interval_text(Estimate{1.0249, {}, 1}), kNone);
  EXPECT_EQ(text_of({}), kNone);
}

TEST(Table, NumbersOfAColumnHaveAsManyDigits) {
  const auto column_of = [](const std::vector<std::optional<Estimate>>& numbers) {
    Columns<std::optional<Estimate>> columns;
    columns.add({"ms"}, [](const auto& number) { return Cell::of(number); });
    columns.add({"x"}, [](const auto& number) { return Cell::of(number, 1); });
    return columns.table(numbers).csv();
  };
  EXPECT_EQ(column_of({Estimate{365.93, Interval{365.5, 366.04}, 6}, Estimate{27.551, {}, 1}, std::nullopt}),
            "ms,x\n365.93,365.9\n27.55,27.6\n-,-\n");
  EXPECT_EQ(column_of({Estimate{8.3814, {}, 1}, Estimate{0.0, {}, 1}}), "ms,x\n8.381,8.4\n0.000,0.0\n");
  EXPECT_EQ(column_of({Estimate{8.3814, {}, 1}, Estimate{215.02, {}, 1}}), "ms,x\n8.38,8.4\n215.02,215.0\n")
      << "the largest has five digits at most";
  EXPECT_EQ(column_of({Estimate{12.4, {}, 1}, Estimate{123456.0, {}, 1}}),
            "ms,x\n12,12.4\n123456,123456.0\n");
}

TEST(Text, JoinsEmptyPartsToo) {
  EXPECT_EQ(join({"", "a", "", "b", ""}, ","), ",a,,b,");
  EXPECT_EQ(join({}, ","), "");
}

TEST(Text, WordsForAShellAreReadBack) {
  const std::vector<std::string> words = {"run", "", "two words", "it's", "a\\b", "*", "--out=r.json"};
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  EXPECT_EQ(quoted[0], "run");
  EXPECT_EQ(shell_words(join(quoted, " ")), words);
  EXPECT_EQ(shell_words("  a  b\\ c "), (std::vector<std::string>{"a", "b c"}));
  for (const char* open : {"mpirun 'a b", "mpirun \"a b'", "'"})
    EXPECT_THROW(shell_words(open), InputError) << open;
}

}  // namespace
}  // namespace stepladder
