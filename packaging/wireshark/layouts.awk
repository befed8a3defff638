# Halyard: writes halyard.lua: the tables that its template leaves open, read from the headers that
# lay messages out, so that they are written down once.
#
#   awk -f layouts.awk status.h uct_tl.h wire.h wire.c ofi_wire.h halyard.lua.in
#
# Knows the little of C that those use: comments at the end of lines, enums, #define NAME number,
# structures of integers of fixed width, arrays of them and other such structures, and the rows of
# ucp_wire_table. Ends with 1 at a field that it does not understand; test/wireshark compares what
# it wrote with what the compiler sees. Runs with any awk, so that a build needs nothing for it.
# SPDX-License-Identifier: BSD-3-Clause

function fail(text)
{
    print "layouts.awk: " FILENAME ":" FNR ": " text >"/dev/stderr"
    failed = 1
    exit 1
}

function add_row(table, text)
{
    rows_of["@" table "@"] = rows_of["@" table "@"] "    {" text "},\n"
}

function add_field(layout, name, offset, size, type)
{
    members[layout] = members[layout] name " " offset " " size " " type "\n"
    add_row("fields", sprintf("\"%s\", \"%s\", %d, %d, \"%s\"", layout, name, offset, size, type))
}

# A structure's declarations, as one string.
function add_layout(layout, body,    line, part, n, i, j, offset, align, biggest, count, rows, row,
                    sub_part)
{
    n = split(body, line, ";")
    for (i = 1; i < n; ++i) {
        gsub(/[][]/, " ", line[i])
        j = split(line[i], part, " ")
        if (!(part[1] in size_of) || (j < 2)) fail(layout ": what is '" line[i] "'?")
        for (count = 1; j > 2; --j) {
            if (part[j] in constant) part[j] = constant[part[j]]
            if (part[j] !~ /^[0-9]+$/) fail(layout "." part[2] ": how many are " part[j] "?")
            count *= part[j]
        }
        align   = align_of[part[1]]
        offset  = int((offset + align - 1) / align) * align
        biggest = (align > biggest) ? align : biggest
        offset_of[layout, part[2]] = offset
        if (part[1] in members) { # one inside: its fields
            rows = split(members[part[1]], row, "\n")
            for (j = 1; j < rows; ++j) {
                split(row[j], sub_part, " ")
                add_field(layout, part[2] "." sub_part[1], offset + sub_part[2], sub_part[3],
                          sub_part[4])
            }
        } else {
            add_field(layout, part[2], offset, size_of[part[1]] * count,
                      (count > 1) ? "bytes" : part[1])
        }
        offset += size_of[part[1]] * count
    }
    size_of[layout]  = int((offset + biggest - 1) / biggest) * biggest
    align_of[layout] = biggest
    add_row("sizes", sprintf("\"%s\", %d", layout, size_of[layout]))
}

function add_enum(body,    entry, part, n, i, value, first)
{
    n = split(body, entry, ",")
    value = -1
    for (i = 1; i <= n; ++i) {
        gsub(/[ \t]/, "", entry[i])
        if (entry[i] == "") continue
        value = (split(entry[i], part, "=") == 2) ? part[2] : value + 1
        if (value !~ /^-?[0-9]+$/) fail(part[1] ": what is " value "?")
        constant[part[1]] = value
        first = (first == "") ? part[1] : first
        if (first ~ /^(UCS|UCP_WIRE|UCT_OFI|UCT_ATOMIC)_/)
            add_row("enums", sprintf("\"%s\", \"%s\", %d", first, part[1], value))
    }
}

function add_message(id, size_text,    layout, size)
{
    layout = (size_text in cut) ? cut[size_text] : size_text
    size   = (size_text in cut) ? offset_of[layout, before[size_text]] : size_of[layout]
    if ((size + 0 == 0) || !(id in constant)) fail("what is message " id " of " size_text "?")
    add_row("messages", sprintf("%d, \"%s\", \"%s\", %d", constant[id], substr(id, 10), layout,
                                size))
}

BEGIN {
    for (bits = 8; bits <= 64; bits *= 2) {
        size_of["uint" bits "_t"] = align_of["uint" bits "_t"] = bits / 8
        size_of["int" bits "_t"]  = align_of["int" bits "_t"]  = bits / 8
    }
}

FILENAME ~ /\.in$/ {
    if ($1 in rows_of) printf "%s", rows_of[$1]
    else               print
    next
}

{ # nothing stands behind a comment
    if (in_comment) { in_comment = !/\*\//; next }
    if (/\/\*/)     { in_comment = !/\*\//; sub(/\/\*.*/, "") }
}

/^#define +U[A-Z_]+ +(0x)?[0-9a-f]+u?[ \t]*$/ {
    sub(/u$/, "", $3)
    constant[$2] = $3
    if ($2 ~ /^(UCP_WIRE|UCT_OFI)_/) add_row("defines", sprintf("\"%s\", %s", $2, $3))
}
/^#define +[A-Z_]+ +offsetof\(/ { # how much of a structure there is at least
    sub(/.*offsetof\(/, "", $3)
    cut[$2]   = substr($3, 1, length($3) - 1)
    before[$2] = substr($4, 1, length($4) - 1)
}

/^(typedef )?(enum|struct)( [a-z_]+)? \{/ { kind = /enum/ ? "enum" : "struct"; text = ""; next }
kind != "" && /^\}/ {
    name = $0
    gsub(/[};]|UCS_S_PACKED| /, "", name)
    if (kind == "enum") add_enum(text)
    else if (name ~ /^(ucp_wire|uct_ofi)_/ && name != "ucp_wire_message_t") add_layout(name, text)
    kind = ""
}
kind != "" { text = text " " $0 }

/^ +(HEADER|PAYLOAD|IN_PLACE|SHOWN|IN_PARTS)\([A-Z_]+, / { # a row: name, header's bytes, handler
    id = $1
    gsub(/.*\(|,/, "", id)
    size_text = $2
    gsub(/sizeof|[(),]/, "", size_text)
    add_message("UCP_WIRE_" id, size_text)
}

END { exit failed }
