/* Halyard: a program that does nothing: what it costs to be linked with a library.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
int main(void)
{
    return 0;
}
