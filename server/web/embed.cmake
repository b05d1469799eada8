# Makes a C file of the files of the page: -DPAGE=<folder> -DOUT=<file>.
set(text "#include \"routes.h\"\n")
foreach(row "index|index.html|text/html" "style|page.css|text/css" "script|page.js|text/javascript" "icon|icon.svg|image/svg+xml")
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 name)
  list(GET row 1 file)
  list(GET row 2 type)
  file(READ ${PAGE}/${file} bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n    " lines "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " lines "${lines}")
  string(APPEND text "\nstatic const unsigned char bytes_of_${name}[] = {\n    ${lines}};\n"
    "const struct page_file page_${name} = {\"${type}; charset=utf-8\", bytes_of_${name}, sizeof(bytes_of_${name})};\n")
endforeach()
file(WRITE ${OUT} "${text}")
